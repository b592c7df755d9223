"""`dataserver store cat`: the rows of a store on disk as JSON Lines."""

import argparse
import json
import sys
from typing import TYPE_CHECKING, Final

from dataserver.cli.progress import Progress
from dataserver.cli.store_arguments import add_store_arguments, open_named
from dataserver.errors import OutOfRangeError

if TYPE_CHECKING:
    from dataserver.stores import Store

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

# Rows that are read at a time, so that memory is bounded and blocks are read once.
_ROWS_AT_ONCE: Final = 256


def add_cat_verb(verbs: "Subparsers") -> None:
    """Add `store cat`."""
    purpose = "print rows as JSON Lines, in store order, dropped ones too"
    parser = verbs.add_parser("cat", help=purpose, description=purpose)
    add_store_arguments(parser)
    parser.add_argument("--rows", type=_row_range, default=(0, None), metavar="A:B", help="rows A up to B, B excluded")
    parser.set_defaults(handler=_cat)


def _cat(arguments: argparse.Namespace) -> int:

    first, last = arguments.rows
    with Progress("checking") as progress:
        store = open_named(arguments, progress)
    with store:
        if first and first >= store.rows:
            raise OutOfRangeError(f"There is no row {first} in '{arguments.path}', which has {store.rows} rows.")
        max_length = arguments.max_length or max(store.longest_row, 1)
        end = store.rows if last is None else min(last, store.rows)
        for begin in range(first, end, _ROWS_AT_ONCE):
            _print_rows(store, max_length, begin, min(begin + _ROWS_AT_ONCE, end))
        if last is not None and last > store.rows:
            sys.stdout.flush()
            print(f"dataserver: '{arguments.path}' ends after row {store.rows - 1}", file=sys.stderr)
    return 0


def _print_rows(store: "Store", max_length: int, begin: int, end: int) -> None:
    import numpy as np

    numbers = range(begin, end)
    reasons, rows = store.reasons(begin, end, max_length), store.read_rows(numbers, images=False)
    counts = store.tables.images.counts(np.arange(begin, end)).tolist()
    for number, row, reason, (images, patches) in zip(numbers, rows, reasons, counts, strict=True):
        kept = reason == ""
        served = max_length if kept else len(row.input_ids)
        line = {
            "row": number,
            "kept": kept,
            "reason": reason,
            "input_ids": row.input_ids[:served].tolist(),
            "loss_mask": row.loss_mask[:served].tolist(),
        }
        if row.loss_weight is not None:
            line["loss_weight"] = row.loss_weight[:served].tolist()
        if store.images is not None and images:
            line["pixel_values_shape"] = [patches, store.images.patch_values]
            line["image_grid_thw_shape"] = [images, 3]
        print(json.dumps(line))


def _row_range(text: str) -> tuple[int, int | None]:
    first, colon, last = text.partition(":")
    if not colon or not all(part.isdecimal() or part == "" for part in (first, last)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a range of rows like 10:20, 10: or :20")
    begin, end = int(first or 0), int(last) if last else None
    if end is not None and end <= begin:
        raise argparse.ArgumentTypeError(f"{text!r} holds no row: the row after the last stands behind the colon")
    return begin, end
