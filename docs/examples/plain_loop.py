"""A training loop without a framework: resumes, checkpoints, commits, and survives its data server.

    python docs/examples/plain_loop.py HOST:PORT --run demo --store chat --checkpoint demo.json

Its "weights" count how often each token was trained on, so that anybody can check them against
the store. Weights and cursor lie in one file that is replaced as a whole: they never disagree,
wherever the loop is killed.
"""

import argparse
import json
import os
import sys
import uuid
from pathlib import Path

import numpy as np

from dataserver.client import DataClient
from dataserver.cursor import Cursor
from dataserver.run_spec import BatchSpec, OrderSpec, RunSpec, Source

VOCABULARY = 1000


def load(checkpoint: Path) -> tuple[np.ndarray, Cursor | None]:
    """The weights, int64[VOCABULARY], and the cursor that belongs to them; fresh ones without a checkpoint."""
    if not checkpoint.exists():
        return np.zeros(VOCABULARY, dtype=np.int64), None
    saved = json.loads(checkpoint.read_text())
    return np.array(saved["weights"], dtype=np.int64), Cursor.from_json(saved["cursor"])


def save(checkpoint: Path, weights: np.ndarray, cursor: Cursor) -> None:
    """Replace the checkpoint in one step: after a crash there is the old one or the new one."""
    beside = checkpoint.with_suffix(".new")
    with beside.open("w") as file:
        json.dump({"weights": weights.tolist(), "cursor": cursor.to_json()}, file)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(checkpoint)


def train(client: DataClient, run: str, spec: RunSpec, checkpoint: Path) -> None:
    """Train to the end of the run, from the checkpoint if there is one."""
    weights, cursor = load(checkpoint)
    stood_at = client.create_run(run, spec).committed.step
    if cursor is not None and cursor.step != stood_at:
        print(
            f"the ledger stood at step {stood_at}, {checkpoint} holds step {cursor.step} and wins: going on from it; "
            f"if that undoes a rewind, put back the checkpoint of step {stood_at}",
            file=sys.stderr,
        )
    attempt = client.begin_attempt(
        run,
        resume=cursor is not None,
        cursor=cursor,
        world_size=1,
        dp_world_size=1,
        holder=f"plain-loop-{uuid.uuid4()}",
        wait_alive_s=60,  # a loop that was killed counts as alive until its server notices
    )
    with client.stream(run, attempt, world_rank=0, dp_rank=0, next_step=attempt.base.step + 1) as stream:
        for step in stream:
            for micro_batch in step:
                weights += np.bincount(micro_batch.tokens, minlength=VOCABULARY)
            stream.ack(step)
            save(checkpoint, weights, step.end)
            client.commit_cursor(run, attempt, step.end, checkpoint.absolute().as_uri())
            print(f"step {step.number}: {step.token_count} tokens, waited {1000 * step.wait_s:.1f} ms", flush=True)


def main() -> None:
    """Read the command line and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("endpoints", metavar="HOST:PORT[,HOST:PORT...]")
    parser.add_argument("--run", required=True)
    parser.add_argument("--store", required=True)
    parser.add_argument("--checkpoint", required=True, type=Path)
    arguments = parser.parse_args()
    spec = RunSpec(
        order=OrderSpec(sources=(Source(store=arguments.store),), max_length=64, seed=1),
        batch=BatchSpec(step_tokens=256, micro_batch_tokens=128, max_epochs=2),
        vocab_size=VOCABULARY,
    )
    with DataClient(arguments.endpoints) as client:
        train(client, arguments.run, spec, arguments.checkpoint)


if __name__ == "__main__":
    main()
