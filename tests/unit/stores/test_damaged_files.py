"""Files with bytes changed, lost or added at random are refused or read: nothing else comes of it."""

import random

import numpy as np
import pyarrow as pa

from dataserver.errors import StoreRefusedError

DAMAGES = 60


def damaged(whole, rng):
    data = bytearray(whole)
    for _ in range(rng.choice([1, 1, 2, 4])):
        at, kind = rng.randrange(len(data)), rng.random()
        if kind < 0.7:
            data[at] = rng.choice([0, 1, 127, 128, 255, rng.randrange(256)])
        elif kind < 0.85:
            del data[at : at + rng.randrange(1, 16)]
        else:
            data[at:at] = rng.randbytes(rng.randrange(1, 16))
    return bytes(data)


def test_a_damaged_file_is_refused_or_read_and_nothing_else(opened, one_file, table, form):
    rows = [[row, row + 1, row + 2][: row % 4] for row in range(30)]
    masks = [[1, 0, 1][: row % 4] for row in range(30)]
    side = pa.array(["a", "b"] * 15).dictionary_encode()
    path = one_file(table(rows, masks, side=side), form, rows_per_block=9)
    whole = path.read_bytes()
    rng = random.Random(form)
    refusals = []
    for _ in range(DAMAGES):
        path.write_bytes(damaged(whole, rng))
        try:
            store = opened(path)
            view = store.selection(2)
            lengths = view.lengths(np.arange(view.rows))
            assert len(list(store)) == store.rows
            assert view.kept_tokens == lengths.sum()
        except StoreRefusedError as error:
            refusals.append(error.message)
    assert len(refusals) > DAMAGES // 3
    assert [message for message in refusals if path.name not in message] == []
