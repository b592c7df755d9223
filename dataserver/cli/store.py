"""`dataserver store`: check a store on disk, and print its rows. Needs no server."""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from dataserver.errors import OutOfRangeError, StoreRefusedError
from dataserver.stores import Figures, LossMask, Store, open_store
from dataserver.stores.selection import check_usable

_BAR_AFTER_S = 1.0
_BAR_EVERY_S = 0.2
_HISTOGRAM_WIDTH = 40

# Rows that `cat` reads at a time, so that memory is bounded and blocks are read once.
_CAT_ROWS = 256


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `store check` and `store cat`."""
    parser = subparsers.add_parser("store", help="check and look at stores on disk")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    check = commands.add_parser("check", help="admit a store, or say why it is refused")
    _add_store_arguments(check)
    check.add_argument("--vocab-size", type=_positive, metavar="V", help="refuse a token at or above V")
    check.add_argument("--json", action="store_true", help="print JSON")
    check.set_defaults(handler=_check)

    cat = commands.add_parser("cat", help="print rows as JSON Lines, in store order, dropped ones too")
    _add_store_arguments(cat)
    cat.add_argument("--rows", type=_row_range, default=(0, None), metavar="A:B", help="rows A up to B, B excluded")
    cat.set_defaults(handler=_cat)


def _add_store_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", type=Path, metavar="PATH", help="a file or a directory")
    parser.add_argument(
        "--max-length", type=_positive, metavar="N", help="longest sample served; default: the longest row"
    )
    parser.add_argument(
        "--loss-mask",
        type=LossMask,
        choices=list(LossMask),
        default=LossMask.COLUMN,
        help="where the loss mask comes from: its column, or `all` tokens are targets",
    )


def _check(options: argparse.Namespace) -> int:
    bar = _ProgressBar()
    try:
        with open_store(options.path, loss_mask=options.loss_mask, progress=bar) as store:
            bar.close()
            if options.vocab_size is not None:
                store.check_vocab(options.vocab_size)
            max_length = options.max_length or max(store.longest_row, 1)
            figures = store.figures(max_length)
            check_usable(store.path, max_length, figures)
            report = _report(store, figures, max_length)
    except StoreRefusedError as error:
        bar.close()
        if options.json:
            print(
                json.dumps({"verdict": "refused", "path": str(options.path), "error": error.message, **error.details})
            )
        raise
    if options.json:
        print(json.dumps(report))
    else:
        print(_text(report))
    return 0


def _cat(options: argparse.Namespace) -> int:
    with open_store(options.path, loss_mask=options.loss_mask) as store:
        max_length = options.max_length or max(store.longest_row, 1)
        first, last = options.rows
        if first > store.rows:
            raise OutOfRangeError(f"There is no row {first} in '{options.path}', which has {store.rows} rows.")
        end = store.rows if last is None else min(last, store.rows)
        for begin in range(first, end, _CAT_ROWS):
            _print_rows(store, max_length, begin, min(begin + _CAT_ROWS, end))
    return 0


def _print_rows(store: Store, max_length: int, begin: int, end: int) -> None:
    reasons = store.reasons(begin, end, max_length)
    for number, row, reason in zip(range(begin, end), store.read_rows(range(begin, end)), reasons, strict=True):
        kept = reason == ""
        served = max_length if kept else len(row.input_ids)
        line = {
            "row": number,
            "kept": kept,
            "reason": reason,
            "input_ids": row.input_ids[:served].tolist(),
            "loss_mask": row.loss_mask[:served].tolist(),
        }
        print(json.dumps(line))


def _report(store: Store, figures: Figures, max_length: int) -> dict[str, Any]:
    return {
        "verdict": "admitted",
        "path": str(store.path),
        "format": store.format,
        "fingerprint": store.fingerprint,
        "loss_mask": str(store.loss_mask),
        "rows": store.rows,
        "tokens": store.tokens,
        "longest_row": store.longest_row,
        "max_token": store.max_token,
        "max_token_row": store.max_token_row,
        "token_bytes": store.token_bytes,
        "max_length": max_length,
        "kept_rows": figures.rows,
        "kept_tokens": figures.kept_tokens,
        "cut_tokens": figures.cut_tokens,
        "dropped": figures.dropped,
        "columns": [{"name": column.name, "type": column.type} for column in store.columns],
        "shards": [
            {"path": shard.path, "size": shard.size, "rows": shard.rows, "digest": shard.digest}
            for shard in store.shards
        ],
        "ignored": [{"path": entry.path, "reason": entry.reason} for entry in store.ignored],
        "links": [{"path": path, "target": target} for path, target in store.links],
        "length_histogram": [
            {"begin": bucket.begin, "end": bucket.end, "rows": bucket.rows} for bucket in store.length_histogram()
        ],
    }


def _text(report: dict[str, Any]) -> str:
    """The report for people."""
    cut = report["cut_tokens"]
    share = 100 * cut / max(1, cut + report["kept_tokens"])
    lines = [
        f"admitted     {report['path']}",
        f"format       {report['format']}, {len(report['shards'])} shards",
        f"fingerprint  {report['fingerprint']}",
        f"rows         {report['rows']:,}",
        f"tokens       {report['tokens']:,}, longest row {report['longest_row']:,}",
        f"token ids    up to {report['max_token']:,} (row {report['max_token_row']}), "
        f"{report['token_bytes']} bytes each on the wire",
        f"loss mask    {report['loss_mask']}",
        f"served       {report['kept_rows']:,} rows, {report['kept_tokens']:,} tokens "
        f"at max_length {report['max_length']:,}",
        f"cut off      {cut:,} tokens ({share:.1f} % of the served rows)",
        "dropped      " + (", ".join(f"{count:,} {reason}" for reason, count in report["dropped"].items()) or "none"),
        "columns      " + ", ".join(f"{column['name']}: {column['type']}" for column in report["columns"]),
    ]
    lines += [f"ignored      {entry['path']} ({entry['reason']})" for entry in report["ignored"]]
    lines += [f"link         {entry['path']} -> {entry['target']}" for entry in report["links"]]
    return "\n".join([*lines, "", *_histogram_lines(report["length_histogram"])])


def _histogram_lines(buckets: list[dict[str, int]]) -> list[str]:
    highest = max((bucket["rows"] for bucket in buckets), default=1)
    lines = ["tokens per row           rows"]
    for bucket in buckets:
        span = f"{bucket['begin']:,} .. {bucket['end'] - 1:,}"
        bar = "#" * -(-bucket["rows"] * _HISTOGRAM_WIDTH // highest)
        lines.append(f"{span:>17} {bucket['rows']:>11,}  {bar}".rstrip())
    return lines


class _ProgressBar:
    """One line on a terminal's stderr, once the pass has taken a while."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._next = self._begun + _BAR_AFTER_S
        self._shown = False

    def __call__(self, done_bytes: int, total_bytes: int) -> None:
        now = time.monotonic()
        if now < self._next or not sys.stderr.isatty():
            return
        self._next = now + _BAR_EVERY_S
        self._shown = True
        share = done_bytes / max(1, total_bytes)
        left_s = (now - self._begun) * (1 - share) / max(share, 1e-9)
        bar = ("#" * round(share * _HISTOGRAM_WIDTH)).ljust(_HISTOGRAM_WIDTH, ".")
        text = f"\rchecking {bar} {share:4.0%} of {total_bytes / 1e9:.2f} GB, {left_s:.0f} s left "
        print(text, end="", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Wipe the line. Idempotent."""
        if self._shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
            self._shown = False


def _positive(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return number


def _row_range(text: str) -> tuple[int, int | None]:
    first, colon, last = text.partition(":")
    if not colon or not all(part.isdecimal() or part == "" for part in (first, last)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a range of rows like 10:20, 10: or :20")
    return int(first or 0), int(last) if last else None
