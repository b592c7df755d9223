"""Which checkpoints are there, which belong to a run, which is gone on from, which are kept."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from dataserver.cursor import Cursor
from trainer.checkpoint import RECORD_FILE, Checkpoints, Lineage, Record, read_checkpoint
from trainer.errors import CheckpointError

DIGESTS = (3, -(2**63))
LINEAGE = Lineage(run="chat", run_uid="u1", order_fingerprints=("order",), attempt=0, base_step=0)


def record(step: int, attempt: int = 1, *, run_uid: str = "u1", order: str = "order") -> Record:
    cursor = Cursor(order_fingerprint=order, step=step, epoch=1, position=3 * step)
    return Record(run="chat", run_uid=run_uid, attempt=attempt, world_size=2, cursor=cursor, config={"a": 1})


def write(checkpoints: Checkpoints, *records: Record) -> list[Path]:
    paths = []
    for one in records:
        temporary = checkpoints.begin(one)
        (temporary / "__0_0.distcp").write_bytes(b"weights")
        paths.append(checkpoints.commit(temporary, one, DIGESTS))
    return paths


@pytest.fixture
def checkpoints(tmp_path: Path) -> Checkpoints:
    return Checkpoints(tmp_path / "checkpoints")


def steps(checkpoints: Checkpoints) -> list[tuple[int, int]]:
    return [(found.record.step, found.record.attempt) for found in checkpoints.complete()]


def test_a_record_comes_back_as_it_was_written(checkpoints: Checkpoints) -> None:
    [path] = write(checkpoints, record(7))
    found = read_checkpoint(path)
    assert (found.record, found.digests) == (record(7), DIGESTS)


def test_what_is_being_written_is_not_there_yet(checkpoints: Checkpoints) -> None:
    write(checkpoints, record(5))
    temporary = checkpoints.begin(record(10))
    (temporary / "__0_0.distcp").write_bytes(b"half")
    assert steps(checkpoints) == [(5, 1)]
    assert checkpoints.choose("auto", LINEAGE).record.step == 5


def test_auto_takes_the_newest_by_step_not_by_name_or_time(checkpoints: Checkpoints) -> None:
    write(checkpoints, record(100_000_000), record(9), record(10))
    assert checkpoints.choose("auto", LINEAGE).record.step == 100_000_000


def test_none_starts_fresh_though_checkpoints_are_there(checkpoints: Checkpoints) -> None:
    assert checkpoints.choose("auto", LINEAGE) is None
    write(checkpoints, record(5))
    assert checkpoints.choose("none", LINEAGE) is None


def test_a_path_is_taken_exactly_though_a_newer_one_is_there(checkpoints: Checkpoints) -> None:
    old, _ = write(checkpoints, record(5), record(10))
    assert checkpoints.choose(old, LINEAGE).record.step == 5


def test_steps_that_a_later_attempt_went_back_behind_are_not_resumed(checkpoints: Checkpoints) -> None:
    write(checkpoints, record(5, 1), record(10, 1))
    rewound = replace(LINEAGE, attempt=2, base_step=5)
    assert checkpoints.choose("auto", rewound).record.step == 5
    write(checkpoints, record(7, 2))
    assert checkpoints.choose("auto", rewound).record.step == 7


def test_a_ledger_restored_from_an_older_copy_does_not_lose_a_checkpoint(checkpoints: Checkpoints) -> None:
    write(checkpoints, record(5, 1), record(10, 3))
    assert checkpoints.choose("auto", replace(LINEAGE, attempt=1, base_step=0)).record.step == 10


def test_another_runs_checkpoints_are_refused_unless_named(checkpoints: Checkpoints) -> None:
    _, newest = write(checkpoints, record(5, run_uid="u0"), record(10, run_uid="u0"))
    message = rf"{newest} belongs to run 'chat' \(u0\), not to 'chat' \(u1\).* --resume {newest} to go on from it"
    for resume in ("auto", "none"):
        with pytest.raises(CheckpointError, match=message):
            checkpoints.choose(resume, LINEAGE)
    assert checkpoints.choose(newest, LINEAGE).record.step == 10


def test_a_checkpoint_of_another_order_is_refused_though_named(checkpoints: Checkpoints) -> None:
    [path] = write(checkpoints, record(5, order="other"))
    for resume in ("auto", path):
        with pytest.raises(CheckpointError, match="another order"):
            checkpoints.choose(resume, LINEAGE)


def test_a_damaged_checkpoint_is_named_and_not_passed_over(checkpoints: Checkpoints) -> None:
    older, path = write(checkpoints, record(5), record(10))
    (path / "__0_0.distcp").write_bytes(b"wei")
    with pytest.raises(CheckpointError, match=r"__0_0\.distcp holds 3 bytes, 7 were written"):
        checkpoints.choose("auto", LINEAGE)
    (path / "__0_0.distcp").unlink()
    with pytest.raises(CheckpointError, match="no complete checkpoint"):
        checkpoints.choose("auto", LINEAGE)
    assert checkpoints.choose(older, LINEAGE).record.step == 5


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"format": 1}', '{"format": 2, "files": {}}'])
def test_a_record_that_says_nothing_is_refused(checkpoints: Checkpoints, text: str) -> None:
    [path] = write(checkpoints, record(5))
    (path / RECORD_FILE).write_text(text)
    with pytest.raises(CheckpointError, match="step-00000005"):
        read_checkpoint(path)


def test_an_attempt_number_that_is_issued_twice_replaces_the_checkpoint(checkpoints: Checkpoints) -> None:
    [first] = write(checkpoints, record(5))
    [second] = write(checkpoints, replace(record(5), world_size=4))
    assert first == second
    assert json.loads((second / RECORD_FILE).read_text())["world_size"] == 4


def test_another_runs_checkpoint_is_not_overwritten(checkpoints: Checkpoints) -> None:
    [first] = write(checkpoints, record(5, run_uid="u0"))
    with pytest.raises(CheckpointError, match=r"run 'chat' \(u0\) .* checkpoint\.dir of its own"):
        write(checkpoints, record(5))
    assert read_checkpoint(first).record.run_uid == "u0"


def test_two_runs_that_write_the_same_step_at_once_do_not_touch_each_other(checkpoints: Checkpoints) -> None:
    theirs = checkpoints.begin(record(5, run_uid="u0"))
    (theirs / "__0_0.distcp").write_bytes(b"weights")
    write(checkpoints, record(5))
    assert (theirs / "__0_0.distcp").exists()
