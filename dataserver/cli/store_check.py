"""`dataserver store check`: admit a store on disk and report on it, or say why it is refused."""

import argparse
import json
from typing import TYPE_CHECKING, Any, Final

from dataserver.cli.numbers import whole_number
from dataserver.cli.progress import Progress
from dataserver.cli.store_arguments import add_store_arguments
from dataserver.errors import StoreRefusedError
from dataserver.run_spec import LongRows

if TYPE_CHECKING:
    from dataserver.stores import Figures, Store

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

_HISTOGRAM_WIDTH: Final = 40


def add_check_verb(verbs: "Subparsers") -> None:
    """Add `store check`."""
    purpose = "admit a store, or say why it is refused"
    parser = verbs.add_parser("check", help=purpose, description=purpose)
    add_store_arguments(parser)
    parser.add_argument(
        "--long-rows",
        type=LongRows,
        choices=list(LongRows),
        default=LongRows.TRUNCATE,
        help="what happens to rows above --max-length; `split` only with --loss-mask all",
    )
    parser.add_argument("--vocab-size", type=whole_number(1), metavar="V", help="refuse a token at or above V")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(handler=_check)


def _check(arguments: argparse.Namespace) -> int:
    try:
        report = _checked(arguments)
    except StoreRefusedError as error:
        if arguments.json:
            refusal = {"verdict": "refused", "path": str(arguments.path), "error": error.message, **error.details}
            print(json.dumps(refusal))
        raise
    print(json.dumps(report) if arguments.json else _text(report))
    return 0


def _checked(arguments: argparse.Namespace) -> dict[str, Any]:
    from dataserver.stores import open_store
    from dataserver.stores.selection import check_usable

    with Progress("checking") as progress:
        store = open_store(arguments.path, loss_mask=arguments.loss_mask, progress=progress)
    with store:
        if arguments.vocab_size is not None:
            store.check_vocab(arguments.vocab_size)
        max_length = arguments.max_length or max(store.longest_row, 1)
        figures = store.figures(max_length, arguments.long_rows)
        check_usable(store.path, max_length, figures)
        return _report(store, figures, max_length)


def _report(store: "Store", figures: "Figures", max_length: int) -> dict[str, Any]:
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
