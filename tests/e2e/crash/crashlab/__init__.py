"""A laboratory for crashes: real servers and ranks, real SIGKILLs, weights that are the samples consumed.

    pytest ──line of JSON──> zygote ──fork──> cell ──fork──> server(s)
                                                    ──fork──> ranks of one life, then of the next
                                                    ──fork──> audit

The zygote has imported everything and starts no gRPC, so that a process costs a few milliseconds.
The cell plays torchrun and the service manager: a rank's death ends the job, a server's death
starts the server again. What it hands back is a list of complaints.
"""
