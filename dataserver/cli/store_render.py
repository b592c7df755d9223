"""`dataserver store render`: conversations made into a store, on all cores."""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, get_args

from dataserver.cli.numbers import whole_number
from dataserver.errors import InvalidConfigError

if TYPE_CHECKING:
    from dataserver.render.job import Engine
    from dataserver.render.part import PartReport
    from dataserver.render_options import RenderOptions
    from dataserver.wire.store_info import RenderingInfo

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

# What is done sooner needs no bar.
_FIRST_AFTER_S: Final = 1.0
_LINE_EVERY_S: Final = 5.0
_BAR_EVERY_S: Final = 0.2
_BAR_WIDTH: Final = 30

_STOPPING: Final = ("first_exhausted", "all_exhausted", "all_exhausted_without_replacement")


def add_render_verb(verbs: "Subparsers") -> None:
    """Add `store render`."""
    purpose = "make a store of conversations, by the model's own chat template"
    parser = verbs.add_parser("render", help=purpose, description=purpose)
    parser.add_argument(
        "sources",
        nargs="+",
        metavar="SOURCE",
        help="file or directory of JSON Lines, Parquet or Arrow, a URL of either, or datasets://ORG/NAME:SUBSET@SPLIT",
    )
    parser.add_argument(
        "--weights",
        type=_weights,
        metavar="W,…",
        help="mix the sources: how often rows of each are drawn (absent: all rows of each, one after another)",
    )
    parser.add_argument(
        "--stopping", default="all_exhausted", choices=_STOPPING, help="with weights: when the mixture ends"
    )
    parser.add_argument("--tokenizer", type=Path, required=True, metavar="DIR", help="directory of the tokenizer")
    parser.add_argument(
        "--out", type=Path, required=True, metavar="STORE", help="directory to make; appears when it is whole"
    )
    parser.add_argument(
        "--family", default="auto", help="auto, template, or a family of the renderers package, for instance qwen3"
    )
    parser.add_argument(
        "--roles",
        default="assistant",
        type=_roles,
        metavar="ROLE,…",
        help="whose words are targets (default assistant)",
    )
    parser.add_argument("--train-on", default="all", choices=("all", "last"), help="all assistant turns, or the last")
    parser.add_argument("--max-length", type=int, metavar="N", help="cut samples to N tokens; absent: write them whole")
    parser.add_argument(
        "--on-error",
        default="stop",
        choices=("stop", "collect"),
        help="stop at a bad row, or collect bad rows with reasons",
    )
    parser.add_argument("--engine", default="local", choices=("local", "ray"), help="this machine, or a Ray cluster")
    parser.add_argument("--address", metavar="HOST:PORT", help="the cluster's head; absent: a cluster of this machine")
    parser.add_argument(
        "--processes", type=whole_number(1), metavar="N", help="processes that render (default: one a core)"
    )
    parser.add_argument("--json", action="store_true", help="print the counts as JSON")
    parser.set_defaults(handler=_render)


def _render(arguments: argparse.Namespace) -> int:
    from dataserver.render_options import render_options

    options = render_options(
        tokenizer=arguments.tokenizer, family=arguments.family, roles=arguments.roles, train_on=arguments.train_on,
        max_length=arguments.max_length, on_error=arguments.on_error,
    )  # fmt: skip
    engine = _engine(arguments)
    with _Rate() as rate:
        report = _rendered(arguments, options, engine, rate)
    if arguments.json:
        print(json.dumps({**_counts(report), "store": str(arguments.out)}))
    else:
        _print_report(report, arguments.out)
    return 0


def _rendered(arguments: argparse.Namespace, options: "RenderOptions", engine: "Engine", rate: "_Rate") -> "PartReport":
    from dataserver.render.job import job_key, render_store
    from dataserver.render.mixture import Mixture, render_mixture
    from dataserver.render.pace import Stage
    from dataserver.render.source import find_conversations
    from dataserver.stores import default_index_dir
    from dataserver.weighting import Stopping

    pulled = default_index_dir() / "rendered"
    found = [
        (source, find_conversations(source, pulled, storage_options={}, progress=Stage("fetching", rate.show)))
        for source in arguments.sources
    ]
    if len(found) == 1 and arguments.weights is None:
        [(_, only)] = found
        key = job_key(only, options, progress=Stage("reading", rate.show))
        reading = Stage("reading", rate.show)
        return render_store(only, arguments.out, options, key=key, engine=engine, progress=rate, reading=reading)
    mixture = Mixture(sources=tuple(found), weights=arguments.weights, stopping=Stopping(arguments.stopping))
    return render_mixture(mixture, arguments.out, options, engine=engine, progress=rate)


def _engine(arguments: argparse.Namespace) -> "Engine":
    from dataserver.render import LocalEngine
    from dataserver.render.on_ray import RayEngine

    if arguments.engine == "ray":
        return RayEngine(arguments.address, arguments.processes)
    if arguments.address is not None:
        raise InvalidConfigError(f"--address {arguments.address} is for --engine ray; this machine needs none")
    return LocalEngine(arguments.processes)


def _counts(report: "PartReport") -> dict[str, object]:
    return {
        "rows": report.rows, "samples": report.samples, "tokens": report.tokens, "targets": report.targets,
        "cut_tokens": report.cut_tokens, "dropped": dict(report.dropped), "rejects": report.rejected,
        "joined_tokens": report.joined,
    }  # fmt: skip


def _print_report(report: "PartReport", out: Path) -> None:
    share = report.targets / max(report.tokens, 1)
    print(f"{out}: {report.samples:,} samples of {report.rows:,} rows, {report.tokens:,} tokens, {share:.1%} targets")
    for reason, count in sorted(report.dropped.items()):
        print(f"  dropped {count:,}: {reason}")
    if report.cut_tokens:
        print(f"  cut off {report.cut_tokens:,} tokens")
    if report.joined:
        print(f"  {report.joined:,} tokens join words of a target with the template's, and are no targets")
    if report.rejected:
        print(f"  set aside {report.rejected:,} bad rows, with reasons in {out / '_rejects.jsonl'}")


def _weights(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(weight) for weight in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of numbers, such as 0.7,0.3") from None


def _roles(text: str) -> tuple[str, ...]:
    from dataserver.render_options import Role

    roles = tuple(role for role in text.split(",") if role)
    for role in roles:
        if role not in get_args(Role):
            raise argparse.ArgumentTypeError(f"{role!r} is no role; there are {', '.join(get_args(Role))}")
    return roles


class _Rate:
    """How far it is, rows and tokens a second, and the time left, on standard error."""

    def __init__(self) -> None:
        from dataserver.render.pace import Pace

        self._pace = Pace()
        self._next = time.monotonic() + _FIRST_AFTER_S
        self._shown = False
        self._is_terminal = sys.stderr.isatty()

    def __call__(self, done: int, total: int, report: "PartReport") -> None:
        """Show how far rendering is, if it is time to."""
        self.show(self._pace.rendering(done, total, report))

    def show(self, info: "RenderingInfo") -> None:
        """Show how far a stage is, if it is time to."""
        now = time.monotonic()
        if now < self._next and (info.stage != "rendering" or info.done < info.total):
            return
        line = info.text().removeprefix("being ")
        if self._is_terminal:
            bar = ("#" * round(info.share * _BAR_WIDTH)).ljust(_BAR_WIDTH, ".")
            print(f"\r\033[K{bar} {line}", end="", file=sys.stderr, flush=True)
        else:
            print(line, file=sys.stderr, flush=True)
        self._shown = True
        self._next = now + (_BAR_EVERY_S if self._is_terminal else _LINE_EVERY_S)

    def __enter__(self) -> "_Rate":
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_terminal and self._shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
