"""What happens to a read that breaks off: by position, bounded, and never a byte twice."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataserver.errors import StoreDamagedError, StoreNotFoundError, UnavailableError
from dataserver.storage import ObjectInfo, ReadPolicy
from dataserver.storage.retrying import Attempts, ChangedError, DeniedError, MissingError, TransientError

DATA = bytes(range(200))
INFO = ObjectInfo(path="chat/part-0.parquet", size=len(DATA), version="v1")
WHAT = "'s3://bucket/chat/part-0.parquet'"
SOON = ReadPolicy(backoff_s=1e-4, longest_backoff_s=1e-3)


class Server:
    """Answers by a script: for each request how many bytes come before the fault, and the fault (None: a short end)."""

    def __init__(self, *script: tuple[int, Exception | None]) -> None:
        self.script = list(script)
        self.asked: list[tuple[int, int]] = []

    def fetch(self, begin: int, end: int):
        self.asked.append((begin, end))
        if not self.script:
            yield DATA[begin:end]
            return
        came, fault = self.script.pop(0)
        yield from (DATA[at : at + 1] for at in range(begin, min(end, begin + came)))
        if fault is not None:
            raise fault


def read(server: Server, begin: int = 0, end: int = len(DATA), *, policy: ReadPolicy = SOON, refresh=None) -> bytes:
    return Attempts(WHAT, policy, refresh).read(server.fetch, INFO, begin, end)


def test_a_read_that_goes_well_is_one_request() -> None:
    server = Server()
    assert read(server, 10, 90) == DATA[10:90]
    assert server.asked == [(10, 90)]


def test_an_empty_range_asks_for_nothing() -> None:
    server = Server()
    assert read(server, 7, 7) == b""
    assert server.asked == []


@given(st.lists(st.tuples(st.integers(0, 60), st.sampled_from([None, TransientError("reset")])), max_size=7))
def test_whatever_breaks_off_is_continued_where_it_stopped(script) -> None:
    server = Server(*script)
    assert read(server, 20, 180) == DATA[20:180]
    at = 20
    for (begin, end), (came, _) in zip(server.asked, script, strict=False):
        assert (begin, end) == (at, 180), "each request is for what is missing, no more and no less"
        at = min(180, at + came)


def test_an_answer_that_ends_early_is_noticed() -> None:
    server = Server((30, None))
    assert read(server) == DATA
    assert server.asked == [(0, 200), (30, 200)]


def test_tries_that_bring_nothing_are_bounded_and_the_error_names_object_and_fault() -> None:
    server = Server(*[(0, TransientError("503 Slow Down"))] * 20)
    with pytest.raises(UnavailableError, match=r"chat/part-0\.parquet.*5 tries in a row.*503 Slow Down"):
        read(server, policy=ReadPolicy(tries=5, backoff_s=1e-4))
    assert len(server.asked) == 5


def test_tries_that_bring_bytes_do_not_count_as_in_vain() -> None:
    server = Server(*[(10, TransientError("reset"))] * 19)
    assert read(server, policy=ReadPolicy(tries=2, backoff_s=1e-4, longest_backoff_s=1e-4)) == DATA


def trickle(begin: int, end: int):
    for at in range(begin, end):
        time.sleep(0.002)
        yield DATA[at : at + 1]


def test_a_read_that_trickles_ends_at_its_deadline() -> None:
    with pytest.raises(
        UnavailableError, match=r"part-0\.parquet' was not read within 0\.0502 s: \d+ of 200 bytes had come"
    ):
        Attempts(WHAT, ReadPolicy(deadline_s=0.05)).read(trickle, INFO, 0, 200)


def test_a_long_read_has_longer() -> None:
    assert Attempts(WHAT, ReadPolicy(deadline_s=0.05, slowest_bytes=2)).read(trickle, INFO, 0, 200) == DATA


def test_the_deadline_is_not_slept_through() -> None:
    server = Server(*[(0, TransientError("reset"))] * 20)
    with pytest.raises(UnavailableError, match=r"not read within .* s: the last try failed with: reset"):
        read(server, policy=ReadPolicy(deadline_s=0.0, backoff_s=3600.0))


def test_credentials_are_fetched_again_once() -> None:
    refreshed = []
    server = Server((5, DeniedError("expired")))
    assert read(server, refresh=lambda: refreshed.append(1)) == DATA
    assert refreshed == [1]
    assert server.asked == [(0, 200), (5, 200)]


def test_credentials_that_stay_refused_are_a_clear_error() -> None:
    refreshed = []
    server = Server(*[(0, DeniedError("403 Forbidden"))] * 9)
    with pytest.raises(UnavailableError, match="refuses the credentials"):
        read(server, refresh=lambda: refreshed.append(1))
    assert refreshed == [1]
    assert len(server.asked) == 2


def test_what_was_to_be_written_is_told_so() -> None:
    def fail(fault: Exception) -> None:
        raise fault

    refused = Attempts(WHAT, SOON, done="written")
    with pytest.raises(UnavailableError, match=r"valid, and allow it to be written"):
        refused.run(lambda: fail(DeniedError("403 Forbidden")))
    late = Attempts(WHAT, ReadPolicy(deadline_s=0.05, backoff_s=3600.0), done="written")
    with pytest.raises(UnavailableError, match=r"part-0\.parquet' was not written within 0\.05 s"):
        late.run(lambda: fail(TransientError("reset")))


def test_operations_one_after_another_share_one_deadline_and_each_has_its_tries() -> None:
    attempts = Attempts(WHAT, ReadPolicy(tries=2, backoff_s=1e-4))
    faults = [TransientError("reset"), None] * 2

    def remove() -> None:
        if faults and (fault := faults.pop(0)) is not None:
            raise fault

    attempts.run(remove)
    attempts.run(remove)
    assert not faults
    with pytest.raises(UnavailableError, match=r"was not deleted within 0 s: the time was over"):
        Attempts(WHAT, ReadPolicy(deadline_s=0.0), done="deleted").run(remove)


def test_an_object_that_changed_is_a_damaged_store_and_not_tried_again() -> None:
    server = Server((5, TransientError("reset")), (0, ChangedError("412")))
    with pytest.raises(StoreDamagedError, match=r"part-0\.parquet' changed"):
        read(server)
    assert len(server.asked) == 2


def test_an_object_that_is_gone_is_a_damaged_store_when_read_and_not_found_when_looked_for() -> None:
    with pytest.raises(StoreDamagedError, match="not there any more"):
        read(Server((0, MissingError("404"))))

    def look() -> None:
        raise MissingError("404")

    with pytest.raises(StoreNotFoundError, match="not there"):
        Attempts(WHAT, SOON).run(look)


def test_more_bytes_than_were_asked_for_are_refused() -> None:
    def generous(begin: int, end: int):
        yield DATA[begin : end + 1]

    with pytest.raises(StoreDamagedError, match="1 more"):
        Attempts(WHAT, SOON).read(generous, INFO, 0, 100)
