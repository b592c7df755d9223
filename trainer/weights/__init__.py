"""How weights leave the trainer: one sync at a time, asked for by a stamp, and never at the price of the job.

    handover   what all ranks do: hear rank 0, gather to the end, send, agree
    lead       what rank 0 does besides: prepare, commit in the background, abort, report
    underway   the transfer under way, and how whoever waits in it is woken
    calls      the orchestrator's WeightTransferService
    outgoing   what is sent: names, types, shapes
    gather     FSDP shards -> whole weights in the serving type, bucket by bucket
    sender     a thread that sends while the next bucket is gathered
    checksum   one figure over everything that was sent
    transport  the interface of the ways that weights take: filesystem, gloo, nccl; `ways` makes them
    folders    where files lie: in a directory, or as objects of a storage
    reports    tells the data server how syncs ended
    sync       the values that they share

Only what the trainer's own ranks do among themselves can fail the job. Whatever orchestrator and
engines do, or leave undone, ends in a sync that was skipped or failed, and training goes on.
"""
