"""The command line.

    torchrun --nproc-per-node 2 -m trainer CONFIG.toml --data-endpoint HOST:PORT[,HOST:PORT...]
             [--resume auto|none|PATH] [--take-over] [--section.field=value ...]
    trainer export CHECKPOINT OUT

Without torchrun, `trainer CONFIG.toml ...` is a job of one rank. A rank that fails says so in one
line, naming itself and the cause, keeps the trace in `trainer-rank-N.log` beside the checkpoints,
and exits with code 1; torchrun then ends the others. One that native code ends says where it was.
"""

import argparse
import faulthandler
import logging
import os
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from dataserver.config_file import overrides_of
from dataserver.errors import DataServerError
from trainer.checkpoint import Resume
from trainer.config import TrainerConfig
from trainer.config_file import load_config
from trainer.errors import TrainerError

# What gloo says of a rank that did not come, and of one that is gone.
_WAITED = "Timed out waiting"
_GONE = ("Connection closed by peer", "Connection reset by peer")


def main(arguments: Sequence[str] | None = None) -> int:
    """Train, or export; returns the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    if words[:1] == ["export"]:
        return _export(words[1:])
    return _train(words)


def _export(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="trainer export", description="Write a checkpoint's model for Hugging Face.")
    parser.add_argument("checkpoint", type=Path, help="directory of a checkpoint")
    parser.add_argument("out", type=Path, help="directory to write, new or empty")
    options = parser.parse_args(words)
    from trainer.export import export_checkpoint  # noqa: PLC0415 - imports torch

    try:
        export_checkpoint(options.checkpoint, options.out)
    except (TrainerError, DataServerError) as error:
        print(f"trainer export: {error}", file=sys.stderr)
        return 1
    return 0


def _train(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="trainer",
        description="Train a causal model on what a data server streams. `trainer export CHECKPOINT OUT` exports one.",
        epilog="Any field of the configuration can be set: --optim.lr=1e-4 --run.batch.max_steps=100",
        allow_abbrev=False,
    )
    parser.add_argument("config", type=Path, help="configuration, a TOML file")
    parser.add_argument("--data-endpoint", required=True, metavar="HOST:PORT[,HOST:PORT...]", help="data servers")
    parser.add_argument("--resume", default="auto", type=_resume, metavar="auto|none|PATH", help="which checkpoint")
    parser.add_argument("--take-over", action="store_true", help="displace an attempt of this run that is alive")
    options, rest = parser.parse_known_args(words)
    try:
        overrides = overrides_of(rest)
    except DataServerError as error:
        parser.error(error.message)
    rank = os.environ.get("RANK", "0")
    if rank == "0":
        logging.getLogger("trainer").setLevel(logging.INFO)
    try:
        config = load_config(options.config, overrides)
    except DataServerError as error:
        print(f"trainer: rank {rank}: {error}", file=sys.stderr)
        return 1
    return _run(config, rank, options)


def _run(config: TrainerConfig, rank: str, options: argparse.Namespace) -> NoReturn:
    faulthandler.enable()
    try:
        from trainer.job import run_job  # noqa: PLC0415 - imports torch

        run_job(config, options.data_endpoint, os.environ, resume=options.resume, take_over=options.take_over)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the last place that can name rank and cause
        _tell(config, rank, error)
        end_rank(1)
    end_rank(0)


def end_rank(code: int) -> NoReturn:
    """End this process at once, with nothing left to close but what is printed.

    A collective's threads must not keep a failed rank alive. Nor may they fail one that is done: Python's own end frees
    what a thread of gloo may be about to free, which then aborts, and torchrun takes the job for a failed one.
    """
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _tell(config: TrainerConfig, rank: str, error: BaseException) -> None:
    """Say what failed, in one line, and keep the trace."""
    trace = config.checkpoint.dir / f"trainer-rank-{rank}.log"
    cause = cause_of(error)
    try:
        config.checkpoint.dir.mkdir(parents=True, exist_ok=True)
        with trace.open("a") as file:
            file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} rank {rank} failed\n")
            file.writelines(traceback.format_exception(error))
    except OSError as unwritable:
        trace = Path(f"(no trace: {unwritable})")
    print(f"trainer: rank {rank}: {cause} [trace: {trace}]", file=sys.stderr, flush=True)


def cause_of(error: BaseException) -> str:
    """What ended a rank, in one line."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    text = " ".join(str(error).split()) or "no message"
    if _WAITED in text:
        text += "; another rank did not come within parallel.collective_timeout_s: it hangs or is stopped"
    elif isinstance(error, RuntimeError) and any(sign in text for sign in _GONE):
        text += "; another rank ended: why stands in its own line or log"
    return f"{type(error).__name__}: {text}"


def _resume(word: str) -> Resume:
    return word if word in ("auto", "none") else Path(word)  # type: ignore[return-value]
