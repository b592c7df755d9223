"""The same trainer fed from memory and from a data server: step time and data wait.

One rank trains a tiny model on steps from a server in another process, then on the same steps
from memory. The losses must be equal to the bit, or the benchmark fails.
"""

import json
import multiprocessing
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import mean, median
from typing import Any, Final

import numpy as np
import torch
import torch.distributed as dist

from benchmarks.report import report
from dataserver.client import AttemptInfo, DataClient
from dataserver.testing import attempt_info, running_server, write_store
from trainer.checkpoint import Lineage
from trainer.config import DeviceKind
from trainer.config_file import parse_config
from trainer.data import Endpoint, ServerFeed
from trainer.launch import join_world, start_collectives
from trainer.train import train

STEPS: Final = 100
WARM_UP_STEPS: Final = 5
STEP_TOKENS: Final = 4096
HIDDEN: Final = 64
VOCABULARY: Final = 1000


class Kept:
    """A step whose micro-batches are all in memory."""

    def __init__(self, step: Any) -> None:
        self.batches = list(step)
        names = ("number", "rounds", "end", "plan_digest", "sync_weights", "last")
        counts = ("target_count", "token_count", "sample_count", "weight_sum")
        self.__dict__.update({name: getattr(step, name) for name in names + counts})
        self.wait_s = 0.0

    def __iter__(self) -> Iterator[Any]:
        return iter(self.batches)


class MemoryFeed:
    """Plays steps back."""

    def __init__(self, lineage: Lineage, steps: list[Kept]) -> None:
        self._lineage = lineage
        self._steps = steps

    def await_stores(self, _names: Any) -> None:
        pass

    def create_run(self, _vocab_size: int, **_: Any) -> Lineage:
        return self._lineage

    def begin(self, **_: Any) -> AttemptInfo:
        return attempt_info()

    def open(self, **_: Any) -> Any:
        class Source:
            def __iter__(source) -> Iterator[Kept]:  # noqa: N805
                return iter(self._steps)

            def ack(self, step: Kept) -> None:
                pass

            def close(self) -> None:
                pass

        return Source()

    def commit(self, **_: Any) -> bool:
        return True

    def close(self) -> None:
        pass


def serve(store: Path, pipe: Connection) -> None:
    """Serve until the other end closes; in a process of its own, as in production."""
    with running_server({"chat": store}) as server:
        pipe.send(server.endpoint)
        pipe.poll(None)


def fetch(endpoint: str, config: Any, lineage_feed: ServerFeed) -> tuple[Lineage, list[Kept]]:
    """All steps of a second run with the same order, as one rank gets them."""
    name = "remembered"
    with DataClient(endpoint) as client:
        client.create_run(name, config.run.spec(VOCABULARY))
        attempt = client.begin_attempt(name, resume=False, world_size=1, dp_world_size=1, holder="benchmark")
        kept = []
        with client.stream(name, attempt, world_rank=0, dp_rank=0, next_step=1) as stream:
            for step in stream:
                kept.append(Kept(step))
                stream.ack(step)
    lineage = lineage_feed.create_run(VOCABULARY)
    return replace(lineage, run="remembered", attempt=0, base_step=0), kept


def configuration(directory: Path, name: str) -> Any:
    return parse_config(
        {
            "run": {
                "name": name,
                "order": {"sources": [{"store": "chat"}], "max_length": 512},
                "batch": {
                    "step_tokens": STEP_TOKENS,
                    "micro_batch_tokens": STEP_TOKENS // 2,
                    "max_steps": STEPS,
                },
            },
            "model": {
                "config": {
                    "model_type": "qwen3",
                    "vocab_size": VOCABULARY,
                    "hidden_size": HIDDEN,
                    "intermediate_size": 2 * HIDDEN,
                    "num_hidden_layers": 2,
                    "num_attention_heads": 4,
                    "num_key_value_heads": 2,
                    "head_dim": HIDDEN // 4,
                }
            },
            "checkpoint": {"dir": str(directory / name)},
            "parallel": {"device": "cpu"},
            "metrics": {"jsonl": str(directory / f"{name}.jsonl")},
        },
        "benchmark",
    )


def figures(directory: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / f"{name}.jsonl").read_text().splitlines()]


def summary(feed: str, steps: list[dict[str, Any]]) -> dict[str, object]:
    warm = steps[WARM_UP_STEPS:]
    return {
        "feed": feed,
        "step ms, median": 1e3 * median(step["step_s"] for step in warm),
        "step ms, mean": 1e3 * mean(step["step_s"] for step in warm),
        "data wait ms, mean": 1e3 * mean(step["data_wait_s"] for step in warm),
        "data wait ms, highest": 1e3 * max(step["data_wait_s"] for step in warm),
        "tokens/s": sum(step["tokens"] for step in warm) / sum(step["step_s"] for step in warm),
        "losses": [step["loss"] for step in steps],
    }


def measure(directory: Path) -> list[dict[str, object]]:
    lengths = np.clip(np.random.default_rng(0).lognormal(4.5, 0.6, 4000), 8, 512).astype(int).tolist()
    store = write_store(directory / "store", lengths=lengths)
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(store, theirs))
    server.start()
    try:
        endpoint = ours.recv()
        torch.set_num_threads(1)
        world = join_world(DeviceKind.CPU, {})
        start_collectives(world, 3600)
        served, remembered = (configuration(directory, name) for name in ("served", "memory"))
        feed = ServerFeed(Endpoint(addresses=endpoint, config=served.data), served.run)
        lineage, steps = fetch(endpoint, served, feed)
        train(served, world, feed)
        feed.close()
        train(remembered, world, MemoryFeed(lineage, steps))
    finally:
        ours.close()
        theirs.close()
        server.terminate()
        server.join()
        dist.destroy_process_group()
    return [summary("server", figures(directory, "served")), summary("memory", figures(directory, "memory"))]


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        rows = measure(Path(directory))
    losses = [row.pop("losses") for row in rows]
    assert losses[0] == losses[1], "the losses differ"
    ratio = rows[0]["step ms, median"] / rows[1]["step ms, median"]
    report(
        "trainer_feed",
        f"one rank, {STEPS} steps of {STEP_TOKENS} tokens, hidden size {HIDDEN}",
        rows,
        [f"step time, server over memory: {ratio:.3f}; losses equal to the bit"],
    )


if __name__ == "__main__":
    main()
