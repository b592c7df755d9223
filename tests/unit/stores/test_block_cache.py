"""The cache of decoded blocks: bytes count before they are there, and nobody waits for ever."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from dataserver.errors import InternalError, StoreDamagedError
from dataserver.stores.block_cache import BlockCache, BlockKey, DecodedBlock

OWNER = object()
WAIT_S = 60


def block(size):
    """A block of `size` bytes."""
    return DecodedBlock(tokens=np.zeros(size // 2 - 4, np.uint16), mask=None, starts=np.zeros(1, np.int64))


def key(number, owner=OWNER):
    return BlockKey(owner=owner, shard=0, block=number)


def test_the_least_recently_used_block_goes_first_and_bytes_are_counted():
    cache = BlockCache(1000)
    made = []

    def get(number, needed=300):
        with cache.block(key(number), needed, lambda: made.append(number) or block(needed - 50)) as found:
            assert found.nbytes == needed - 50

    for number in (1, 2, 3):
        get(number)
    assert cache.counted_bytes == 3 * 250
    get(1)
    get(4)
    get(1)
    get(2)
    assert made == [1, 2, 3, 4, 2]
    assert cache.counted_bytes <= 1000
    get(5, needed=1000)
    assert cache.counted_bytes == 950
    cache.forget(OWNER)
    assert cache.counted_bytes == 0


def test_a_block_larger_than_the_cache_is_an_error_and_no_wait():
    cache = BlockCache(1000)
    with (
        pytest.raises(InternalError, match="1001 bytes in a cache of 1000"),
        cache.block(key(1), 1001, lambda: block(8)),
    ):
        pass
    assert cache.counted_bytes == 0
    with cache.block(key(1), 1000, lambda: block(1000)):
        pass


def test_blocks_that_are_all_held_are_pinned_together_and_none_is_where_one_is_missing():
    cache = BlockCache(1000)
    for number in (1, 2, 3):
        with cache.block(key(number), 300, lambda: block(300)):
            pass
    with cache.all_held([key(1), key(4)]) as missing:
        assert missing is None
    with cache.all_held([key(2), key(3)]) as pinned:
        assert [each.nbytes for each in pinned] == [300, 300]
        assert cache.load_ahead(key(5), 400, lambda: block(400))
        assert not cache.load_ahead(key(6), 600, lambda: block(600))
        assert (cache.holds(key(1)), cache.holds(key(2)), cache.holds(key(3))) == (False, True, True)
        cache.forget(OWNER)
        assert cache.counted_bytes == 600
    assert cache.counted_bytes == 0


def test_what_is_being_decoded_counts_so_that_threads_never_hold_more_than_the_bound():
    cache, at_once, most, lock = BlockCache(1000), [0], [0], threading.Lock()

    def read(number):
        def decode():
            with lock:
                at_once[0] += 1
                most[0] = max(most[0], at_once[0])
            assert cache.counted_bytes <= 1000
            made = block(400)
            with lock:
                at_once[0] -= 1
            return made

        with cache.block(key(number), 400, decode) as found:
            assert found.nbytes == 400
            assert cache.counted_bytes <= 1000

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(read, [number % 7 for number in range(300)]))
    assert most[0] <= 2, "a third would have been beyond the bound"


def test_a_block_that_is_read_is_not_let_go_and_the_next_waits_for_it():
    cache, asked, got = BlockCache(1000), threading.Event(), threading.Event()

    def want_another():
        asked.set()
        with cache.block(key(2), 600, lambda: block(600)):
            got.set()

    thread = threading.Thread(target=want_another)
    with cache.block(key(1), 600, lambda: block(600)):
        thread.start()
        assert asked.wait(WAIT_S)
        assert not got.wait(0.05)
        assert cache.counted_bytes == 600
    assert got.wait(WAIT_S)
    thread.join(WAIT_S)
    assert cache.counted_bytes == 600


def test_a_block_that_is_read_counts_when_its_store_is_closed_until_it_is_not():
    cache, other = BlockCache(1000), object()
    with cache.block(key(9, other), 100, lambda: block(100)):
        pass
    with cache.block(key(1), 600, lambda: block(600)):
        cache.forget(OWNER)
        assert cache.counted_bytes == 700
    assert cache.counted_bytes == 100


def test_threads_that_want_one_block_decode_it_once():
    cache, entered, go, made = BlockCache(1000), threading.Event(), threading.Event(), []

    def decode():
        entered.set()
        assert go.wait(WAIT_S)
        made.append(1)
        return block(100)

    def read():
        with cache.block(key(0), 100, decode) as found:
            return found

    with ThreadPoolExecutor(4) as pool:
        readers = [pool.submit(read)]
        assert entered.wait(WAIT_S)
        readers += [pool.submit(read) for _ in range(3)]
        go.set()
        assert len({id(reader.result(WAIT_S)) for reader in readers}) == 1
    assert made == [1]


def test_a_big_block_is_not_starved_by_small_ones_that_come_after_it():
    cache, order = BlockCache(1000), []
    begun, let_go = threading.Event(), threading.Event()

    def hold():
        with cache.block(key(0), 500, lambda: block(500)):
            begun.set()
            assert let_go.wait(WAIT_S)

    def read(number, needed):
        with cache.block(key(number), needed, lambda: order.append(number) or block(needed)):
            pass

    with ThreadPoolExecutor(3) as pool:
        pool.submit(hold)
        assert begun.wait(WAIT_S)
        big = pool.submit(read, 1, 900)
        while not cache._queue:
            assert not big.done()
        small = pool.submit(read, 2, 100)
        while len(cache._queue) < 2:
            assert not small.done()
        let_go.set()
        big.result(WAIT_S)
        small.result(WAIT_S)
    assert order == [1, 2]


def test_a_decode_that_fails_gives_back_its_room_and_is_tried_again_by_the_next():
    cache = BlockCache(1000)

    def fail():
        raise StoreDamagedError("broken")

    for _ in range(2):
        with pytest.raises(StoreDamagedError), cache.block(key(0), 900, fail):
            pass
        assert cache.counted_bytes == 0
    with cache.block(key(0), 900, lambda: block(10)) as found:
        assert found.nbytes == 10
