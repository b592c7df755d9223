"""A laboratory for weights on demand under faults: real servers and orchestrators, fake engines, no torch.

    pytest ──line of JSON──> zygote ──fork──> cell ──fork──> data server, orchestrators, engines; again when killed
                                                    ──fork──> ranks of one life, then of the next
                                                    ──fork──> what the ledger says in the end

The trainer is that of the crash laboratory: its weights are the samples that it consumed. It hands them over as the
contract says, with calls that are lost, late or doubled where a story wants it so. The cell plays the launcher. What a
story hands back is a list of complaints.
"""
