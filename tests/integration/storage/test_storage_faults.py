"""A faulty S3 server on a real socket: every byte comes once, or the error names the object and the fault."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from dataserver.errors import (
    InvalidConfigError,
    StoreDamagedError,
    StoreNotFoundError,
    StoreRefusedError,
    UnavailableError,
)
from dataserver.storage import ObjectInfo, ReadPolicy

SIZE = 4 << 20
INFO = ObjectInfo(path="part-0.parquet", size=SIZE, version="0123456789abcdef")
# What the server serves: byte i is i modulo 256.
DATA = bytes(range(256)) * (SIZE // 256)

BEGIN, END = 1_000, 3_500_000


def is_by_position(asked: list[tuple[int, int]]) -> bool:
    """Every request goes to the end, and none before the one ahead of it."""
    begins = [begin for begin, _ in asked]
    return begins == sorted(begins) and {end for _, end in asked} == {END}


@pytest.mark.parametrize("came", [0, 1, 70_000, 2_000_000])
@pytest.mark.parametrize("how", ["reset_after", "cut_after"])
def test_an_answer_that_breaks_off_is_continued(faulty, how: str, came: int) -> None:
    faulty.script = [getattr(faulty, how)(came)] * 2
    assert faulty.storage().read(INFO, BEGIN, END) == DATA[BEGIN:END]
    assert len(faulty.asked) == 3
    assert is_by_position(faulty.asked)
    if how == "cut_after" and came == 2_000_000:  # a reset takes along what waits in the socket
        assert faulty.asked[1][0] > BEGIN, "what came is kept"


def test_an_answer_of_fewer_bytes_than_asked_for_is_no_answer(faulty) -> None:
    faulty.script = [faulty.short_by(1)]
    assert faulty.storage().read(INFO, BEGIN, END) == DATA[BEGIN:END]
    assert len(faulty.asked) == 2


def test_an_overloaded_storage_is_asked_again_and_again_but_not_for_ever(faulty) -> None:
    faulty.script = [faulty.refuse(503, "SlowDown")] * 3
    assert faulty.storage().read(INFO, BEGIN, END) == DATA[BEGIN:END]
    assert len(faulty.asked) == 4
    faulty.script = [faulty.refuse(503, "SlowDown")] * 9
    with pytest.raises(UnavailableError, match=r"chat/part-0\.parquet': 4 tries in a row failed.*HTTP 503 SlowDown"):
        faulty.storage().read(INFO, BEGIN, END)


def test_silence_ends_at_its_limit_and_the_rest_is_asked_for_elsewhere(faulty) -> None:
    faulty.script = [faulty.stall_after(2_000_000)]
    read = faulty.storage(ReadPolicy(stall_s=1.0, backoff_s=1e-3)).read(INFO, BEGIN, END)
    assert read == DATA[BEGIN:END]
    assert is_by_position(faulty.asked)
    assert faulty.asked[1][0] > BEGIN


def test_a_storage_that_stays_silent_is_given_up_by_name(faulty) -> None:
    faulty.script = [faulty.stall_after(0)] * 9
    with pytest.raises(UnavailableError, match=r"chat/part-0\.parquet"):
        faulty.storage(ReadPolicy(stall_s=0.2, deadline_s=0.5, backoff_s=1e-3)).read(INFO, BEGIN, END)


def test_a_storage_out_of_reach_is_given_up_with_the_reason(faulty) -> None:
    storage = faulty.storage()
    faulty.shutdown()
    faulty.server_close()
    with pytest.raises(UnavailableError, match=r"(?i)chat/part-0\.parquet'.*connect"):
        storage.read(INFO, BEGIN, END)


def test_an_object_that_changed_between_two_reads_is_a_damaged_store(faulty) -> None:
    storage = faulty.storage()
    assert storage.stat("part-0.parquet") == INFO
    assert storage.read(INFO, 0, 10) == DATA[:10]
    faulty.script = [faulty.refuse(412, "PreconditionFailed")]
    with pytest.raises(StoreDamagedError, match=r"part-0\.parquet' changed since it was admitted"):
        storage.read(INFO, 0, 10)


def test_a_server_that_ignores_the_condition_does_not_mix_two_versions(faulty) -> None:
    faulty.script = [faulty.reset_after(2_000_000), faulty.ignores_condition('"another"')]
    with pytest.raises(StoreDamagedError, match="its version was 0123456789abcdef and is another"):
        faulty.storage().read(INFO, BEGIN, END)


def test_an_object_that_is_gone_is_a_damaged_store(faulty) -> None:
    faulty.script = [faulty.refuse(404, "NoSuchKey")]
    with pytest.raises(StoreDamagedError, match=r"part-0\.parquet' was admitted and is not there any more"):
        faulty.storage().read(INFO, BEGIN, END)


@pytest.mark.parametrize(
    ("status", "code"), [(403, "InvalidAccessKeyId"), (400, "ExpiredToken"), (401, "Unauthorized")]
)
def test_credentials_that_ran_out_are_looked_up_anew(faulty, monkeypatch, status: int, code: str) -> None:
    storage = faulty.storage()
    assert storage.read(INFO, 0, 10) == DATA[:10]
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKSECOND")
    faulty.script = [faulty.refuse(status, code)]
    assert storage.read(INFO, BEGIN, END) == DATA[BEGIN:END]
    assert faulty.keys == ["AKFIRST", "AKFIRST", "AKSECOND"]


def test_many_readers_whose_credentials_ran_out_all_go_on(faulty) -> None:
    storage = faulty.storage()
    # All eight have asked before the first is refused: with one's fresh credentials the others would go on at once.
    all_asked = threading.Barrier(8)

    def expired(handler, _begin: int, _end: int) -> None:
        all_asked.wait(60)
        handler.error(403, "ExpiredToken")

    faulty.script = [expired] * 8
    spans = [(at * 1000, at * 1000 + 5000) for at in range(32)]
    with ThreadPoolExecutor(8) as pool:
        read = list(pool.map(lambda span: storage.read(INFO, *span), spans))
    assert read == [DATA[begin:end] for begin, end in spans]


def test_credentials_that_stay_refused_are_told_without_the_secret(faulty) -> None:
    faulty.script = [faulty.refuse(403, "InvalidAccessKeyId")] * 9
    with pytest.raises(UnavailableError, match=r"part-0.*refuses the credentials.*403 InvalidAccessKeyId") as refusal:
        faulty.storage().read(INFO, BEGIN, END)
    assert len(faulty.asked) == 2
    assert "hunter2" not in str(refusal.value)


def test_missing_credentials_are_told(faulty, monkeypatch, tmp_path) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(UnavailableError, match=r"no AWS credentials"):
        faulty.storage().read(INFO, BEGIN, END)


def test_keys_of_a_profile_are_found(faulty, monkeypatch, tmp_path) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    (tmp_path / "credentials").write_text("[team]\naws_access_key_id = AKTEAM\naws_secret_access_key = hunter2\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_PROFILE", "team")
    assert faulty.storage().read(INFO, 0, 10) == DATA[:10]
    assert faulty.keys == ["AKTEAM"]


def test_a_request_that_the_storage_rejects_is_not_repeated(faulty) -> None:
    faulty.script = [faulty.refuse(400, "AuthorizationHeaderMalformed")] * 9
    with pytest.raises(InvalidConfigError, match=r"HTTP 400 AuthorizationHeaderMalformed.*endpoint, region"):
        faulty.storage().read(INFO, BEGIN, END)
    assert len(faulty.asked) == 1


def test_what_is_not_there_is_not_found(faulty) -> None:
    faulty.script = [faulty.refuse(404, "NoSuchBucket")]
    with pytest.raises(StoreNotFoundError, match="HTTP 404 NoSuchBucket"):
        faulty.storage().list()


@pytest.mark.slow
def test_a_listing_that_goes_in_circles_is_refused_and_not_followed(faulty) -> None:
    page = (
        b'<?xml version="1.0"?><ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>again'
        b"</NextContinuationToken><Contents><Key>chat/part-0.parquet</Key><Size>5</Size><ETag>&quot;a&quot;</ETag>"
        b"<LastModified>2026-11-02T00:00:00Z</LastModified></Contents></ListBucketResult>"
    )

    def lists(handler, _begin: int, _end: int) -> None:
        handler.answer(200, page, len(page), {"Content-Type": "application/xml"})

    faulty.script = [lists] * 100_000
    with pytest.raises(StoreRefusedError, match=r"lists 'part-0\.parquet' twice: its listing goes in circles"):
        faulty.storage().list()
