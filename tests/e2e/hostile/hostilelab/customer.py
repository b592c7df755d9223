"""A well-behaved client: consumes an epoch, and looks at every byte."""

from itertools import count

from crashlab.samples import rows_of

from dataserver.client import DataClient
from dataserver.run_spec import BatchSpec, OrderSpec, RunSpec, Source

_numbers = count(1)


def consume_an_epoch(endpoint: str, rows: int) -> list[int]:
    """The rows of one epoch of a fresh run, in the order of their arrival; `ValueError` for a wrong byte."""
    name = f"customer-{next(_numbers)}"
    spec = RunSpec(
        order=OrderSpec(sources=(Source(store="rows"),), seed=3, max_length=16),
        batch=BatchSpec(step_samples=rows // 2, micro_batch_tokens=64, max_epochs=1),
    )
    received = []
    with DataClient(endpoint, patience_s=60.0) as client:
        client.create_run(name, spec)
        attempt = client.begin_attempt(name, resume=False, world_size=1, dp_world_size=1, holder=name)
        with client.stream(name, attempt, world_rank=0, dp_rank=0, next_step=1) as stream:
            for step in stream:
                for micro_batch in step:
                    received += rows_of(micro_batch)
                stream.ack(step)
    return received
