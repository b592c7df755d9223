"""Several gloo ranks in processes of their own, forked from one that has imported torch already."""

import multiprocessing
import traceback
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

DEADLINE_S = 90

_context = multiprocessing.get_context("forkserver")
# Installed modules only: the fork server does not see what tests put on the path. Importing these
# starts no threads, so forking afterwards is safe.
_context.set_forkserver_preload(
    [
        "pytest",
        "transformers.models.llama.modeling_llama",
        "transformers.models.qwen3.modeling_qwen3",
        "trainer.export",
        "trainer.train",
    ]
)


class RankFailedError(AssertionError):
    """A rank raised; the message holds every rank's trace."""


def on_ranks(size: int, work: Callable[..., Any], *arguments: Any) -> list[Any]:
    """Call `work(world, *arguments)` on `size` ranks at once; returns what each returned."""
    # A test's module has no name that another process could import it by; its file will do.
    where = work.__code__.co_filename, work.__name__
    with TemporaryDirectory() as directory:
        pipes = [_context.Pipe(duplex=False) for _ in range(size)]
        ranks = [
            _context.Process(target=_rank, args=(writer, Path(directory) / "store", rank, size, where, arguments))
            for rank, (_, writer) in enumerate(pipes)
        ]
        for process in ranks:
            process.start()
        for _, writer in pipes:
            writer.close()
        try:
            outcomes = [_outcome(reader) for reader, _ in pipes]
        finally:
            for process in ranks:
                process.kill()
                process.join()
    if failures := [text for ok, text in outcomes if not ok]:
        raise RankFailedError("\n".join(map(str, failures)))
    return [value for _, value in outcomes]


def _load(path: str, name: str) -> Callable[..., Any]:
    spec = spec_from_file_location("test_module_of_a_rank", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


def _outcome(reader: Connection) -> tuple[bool, Any]:
    if not reader.poll(DEADLINE_S):
        return False, f"a rank said nothing for {DEADLINE_S} s"
    try:
        ok, value = reader.recv()
    except EOFError:
        return False, "a rank died without a word"
    return ok, value


def _rank(
    writer: Connection, store: Path, rank: int, size: int, where: tuple[str, str], arguments: tuple[Any, ...]
) -> None:
    import torch
    import torch.distributed as dist

    from trainer.launch import World

    torch.set_num_threads(1)
    world = World(
        rank=rank, size=size, local_rank=rank, device=torch.device("cpu"), holder="laboratory", under_torchrun=False
    )
    try:
        dist.init_process_group("gloo", store=dist.FileStore(str(store), size), rank=rank, world_size=size)
        outcome = True, _load(*where)(world, *arguments)
        dist.barrier()
    except BaseException:  # noqa: BLE001 - told to the test
        outcome = False, f"rank {rank} of {size}:\n{traceback.format_exc()}"
    writer.send(outcome)
    writer.close()
