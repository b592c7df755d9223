"""Blocks loaded ahead take room that nobody wishes for, and never what a step under way needs."""

import numpy as np
import pytest
from view_reading import read_view, tokens_of

from dataserver.stores import BlockCache, open_store
from dataserver.stores.ahead import BlockRef, Wish
from dataserver.stores.block_cache import BlockKey, DecodedBlock, NotDecodedError, without_decoding

OWNER = object()


def ref(cache, number, size=300):
    def decode():
        return DecodedBlock(tokens=np.zeros(size // 2 - 4, np.uint16), mask=None, starts=np.zeros(1, np.int64))

    return BlockRef(store="s", cache=cache, key=BlockKey(OWNER, 0, number), needed_bytes=size, decode=decode)


def test_what_is_wished_for_is_not_pushed_out_by_what_is_loaded_ahead():
    cache = BlockCache(1000)
    under_way = [ref(cache, number) for number in range(3)]
    with Wish(under_way):
        assert all(found.load_ahead() for found in under_way)
        assert not ref(cache, 9).load_ahead(), "there is no room, and nothing that may go"
        assert all(found.is_held for found in under_way)
    assert ref(cache, 9).load_ahead(), "nobody wishes for the others any more"
    assert cache.counted_bytes <= 1000


def test_a_read_that_must_pushes_out_what_is_wished_for_last():
    cache = BlockCache(1000)
    idle, wished = ref(cache, 0), [ref(cache, 1), ref(cache, 2)]
    idle.load()
    with Wish(wished):
        for found in wished:
            found.load()
        ref(cache, 3).load()
        assert not idle.is_held
        assert all(found.is_held for found in wished)
        ref(cache, 4, size=1000).load()
        assert not any(found.is_held for found in wished)
    assert cache.counted_bytes == 1000


def test_two_wishes_for_one_block_end_one_after_the_other():
    cache = BlockCache(500)
    found = ref(cache, 1)
    first, second = Wish([found]), Wish([found])
    found.load()
    first.close()
    first.close()
    assert not ref(cache, 2).load_ahead()
    second.close()
    assert ref(cache, 2).load_ahead()


def test_a_load_that_fails_gives_its_room_back():
    cache = BlockCache(1000)

    def fail():
        raise OSError("the storage is away")

    broken = BlockRef(store="s", cache=cache, key=BlockKey(OWNER, 0, 0), needed_bytes=900, decode=fail)
    for load in (broken.load, broken.load_ahead, broken.load):
        with pytest.raises(OSError, match="away"):
            load()
    assert cache.counted_bytes == 0
    ref(cache, 0, size=1000).load()


def test_a_reader_that_may_not_wait_is_told_what_is_missing(one_file, table, index_dir):
    path = one_file(table([[row, row] for row in range(60)]), "parquet", rows_per_block=10)
    store = open_store(path, index_dir=index_dir, cache=BlockCache(1 << 20))
    view = store.view(9)
    rows = np.array([55, 3, 57, 41])
    refs = view.blocks(rows)
    assert [found.key.block for found in refs] == [5, 0, 4]
    with without_decoding(), pytest.raises(NotDecodedError):
        read_view(view, rows, 2)
    for found in refs:
        found.load()
    with without_decoding():
        assert tokens_of(view, rows, 2)[::2].tolist() == rows.tolist()
    assert tokens_of(view, [20], 2).tolist() == [20, 20], "elsewhere reads decode as ever"


def test_mapped_stores_have_nothing_to_load(one_file, table, index_dir):
    view = open_store(one_file(table([[1, 2]] * 5)), index_dir=index_dir).view(9)
    assert not view.decodes
    assert view.blocks(np.arange(5)) == []
    with without_decoding():
        assert tokens_of(view, np.arange(5), 2).tolist() == [1, 2] * 5
