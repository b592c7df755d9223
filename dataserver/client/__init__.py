"""The client of the data server, for any training loop: no torch, no Arrow, threads but no asyncio.

    with DataClient("node1:50051,node2:50051") as client:
        client.create_run("chat", spec)
        attempt = client.begin_attempt("chat", resume=False, world_size=1, dp_world_size=1, holder=str(uuid4()))
        with client.stream("chat", attempt, world_rank=0, dp_rank=0, next_step=1) as stream:
            for step in stream:
                for micro_batch in step:
                    train(micro_batch.tokens, micro_batch.positions, micro_batch.labels)
                stream.ack(step)
                save_checkpoint(step.end)
                client.commit_cursor("chat", attempt, step.end, "file:///checkpoints/chat")

`client`: all calls, out of `run_calls`, `cursor_calls`, `store_calls`, `sync_calls`. `stream`, `step`, `eval_stream`:
what the training loop holds. Behind them `receiver` (the thread that decodes), `sequence` (in order, across
reconnects), `uplink` (acks and credits), `failover` (which server next, how long to wait), `connection` (TLS, token,
channels).
"""

from dataserver.client.client import DEFAULT_CREDITS, DataClient
from dataserver.client.eval_stream import EvalStream
from dataserver.client.step import Step
from dataserver.client.stream import StepStream
from dataserver.wire.micro_batch import NO_TARGET, MicroBatch
from dataserver.wire.runs import AttemptInfo, CommitInfo, CursorInfo, RunEventInfo, RunInfo, StepDescription
from dataserver.wire.store_info import SampleInfo, StoreInfo

__all__ = [
    "DEFAULT_CREDITS",
    "NO_TARGET",
    "AttemptInfo",
    "CommitInfo",
    "CursorInfo",
    "DataClient",
    "EvalStream",
    "MicroBatch",
    "RunEventInfo",
    "RunInfo",
    "SampleInfo",
    "Step",
    "StepDescription",
    "StepStream",
    "StoreInfo",
]
