"""Which rows a store keeps is part of the order: another verdict makes old cursors foreign."""

from collections.abc import Iterator

import numpy as np
import pytest

from dataserver.planning.fingerprint import ORDER_VERSION
from dataserver.run_spec import LongRows

MASKS = ("", "1", "0", "10", "01", "11", "100", "001", "0001", "1001", "00000001", "01000000", "11111111", "00000000")

# The version of the order under which the verdicts below hold.
RECORDED_ORDER_VERSION = 3

# (max_length, long_rows) -> for each of MASKS: targets that are served, or why none is.
#   . empty   - no target   / target cut off   > too long
RECORDED = {
    (1, "truncate"): ". - - - / / - / / / / / / -",
    (2, "truncate"): ". - - - 1 1 - / / / / 1 1 -",
    (3, "truncate"): ". - - - 1 1 - 1 / / / 1 2 -",
    (4, "truncate"): ". - - - 1 1 - 1 1 1 / 1 3 -",
    (8, "truncate"): ". - - - 1 1 - 1 1 1 1 1 7 -",
    (2, "drop"): ". - - - 1 1 - > > > > > > -",
    (4, "drop"): ". - - - 1 1 - 1 1 1 > > > -",
    (8, "drop"): ". - - - 1 1 - 1 1 1 1 1 7 -",
    (8, "refuse"): ". - - - 1 1 - 1 1 1 1 1 7 -",
}
SIGNS = {"empty": ".", "no_target": "-", "target_cut_off": "/", "too_long": ">"}


@pytest.mark.parametrize("form", ["arrow_stream", "parquet"])
@pytest.mark.parametrize(("max_length", "long_rows"), RECORDED)
def test_no_verdict_changes_without_the_version_of_the_order(opened, one_file, table, form, max_length, long_rows):
    rows = [list(range(len(mask))) for mask in MASKS]
    store = opened(one_file(table(rows, [[int(one) for one in mask] for mask in MASKS]), form, rows_per_block=5))
    found = " ".join(verdicts(store, max_length, LongRows(long_rows)))
    assert (found, ORDER_VERSION) == (RECORDED[max_length, long_rows], RECORDED_ORDER_VERSION), (
        "other rows are kept than before: raise ORDER_VERSION in dataserver/planning/fingerprint.py, "
        "and record the new verdicts with it here"
    )


def verdicts(store, max_length, long_rows) -> Iterator[str]:
    view = store.selection(max_length, long_rows)
    targets = iter(view.targets(np.arange(view.rows)).tolist())
    for reason in store.reasons(0, store.rows, max_length, long_rows):
        yield SIGNS[reason] if reason else str(next(targets))
