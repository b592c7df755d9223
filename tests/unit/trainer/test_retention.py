"""Which of a run's checkpoints are removed, and what is never touched."""

from pathlib import Path

import pytest

from dataserver.cursor import Cursor
from trainer.checkpoint import RECORD_FILE, Checkpoints, Lineage, Record
from trainer.errors import CheckpointError
from trainer.retention import Retention


def record(step: int, attempt: int = 1, *, run_uid: str = "u1") -> Record:
    cursor = Cursor(order_fingerprint="order", step=step, epoch=1, position=3 * step)
    return Record(run="chat", run_uid=run_uid, attempt=attempt, world_size=2, cursor=cursor, config={})


def write(checkpoints: Checkpoints, *records: Record) -> list[Path]:
    paths = []
    for one in records:
        temporary = checkpoints.begin(one)
        (temporary / "__0_0.distcp").write_bytes(b"weights")
        paths.append(checkpoints.commit(temporary, one, []))
    return paths


def steps(checkpoints: Checkpoints) -> list[tuple[int, int]]:
    return [(found.record.step, found.record.attempt) for found in checkpoints.complete()]


def test_the_newest_and_every_nth_are_kept(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    write(checkpoints, *(record(step) for step in (5, 10, 15, 20, 25, 30)))
    removed = Retention(checkpoints, "u1", keep_last=2, keep_every=10).prune(1, 0)
    assert [path.name[:13] for path in removed] == ["step-00000005", "step-00000015"]
    assert steps(checkpoints) == [(10, 1), (20, 1), (25, 1), (30, 1)]
    assert [path.name for path in tmp_path.glob(".*")] == []


def test_after_going_back_the_newest_of_the_new_line_is_kept(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    write(checkpoints, record(5, 1), record(10, 1), record(6, 2))
    Retention(checkpoints, "u1").prune(2, 5)
    assert (6, 2) in steps(checkpoints)
    assert (5, 1) not in steps(checkpoints)


def test_what_a_rewind_abandoned_takes_no_place_of_what_the_run_stands_on(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    write(checkpoints, record(44, 1), record(45, 1), record(46, 1), record(46, 2))
    Retention(checkpoints, "u1", keep_last=2).prune(2, 45)
    assert sorted(steps(checkpoints)) == [(45, 1), (46, 1), (46, 2)]


def test_another_runs_checkpoints_are_not_pruned(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    write(checkpoints, record(5, run_uid="u0"), record(10), record(20))
    Retention(checkpoints, "u1").prune(1, 0)
    assert steps(checkpoints) == [(5, 1), (20, 1)]


def test_only_what_earlier_attempts_left_unfinished_is_swept(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    [complete] = write(checkpoints, record(5, 1))
    stale, current = checkpoints.begin(record(10, 1)), checkpoints.begin(record(10, 2))
    theirs = checkpoints.begin(record(10, 1, run_uid="u0"))
    Retention(checkpoints, "u1").sweep(2)
    assert not stale.exists()
    assert current.exists()
    assert complete.exists()
    assert theirs.exists()


def test_what_cannot_be_removed_ends_no_training_and_goes_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = Checkpoints(tmp_path)
    older, newest = write(checkpoints, record(5), record(10))
    retention = Retention(checkpoints, "u1")
    with monkeypatch.context() as patch:
        # As where a file that somebody reads cannot be deleted.
        patch.setattr("os.unlink", refuse)
        assert retention.prune(1, 0) == [older]
    assert steps(checkpoints) == [(10, 1)]
    assert [path.name for path in tmp_path.glob(".*")] == [f".{older.name}.removed"]
    retention.sweep(1)
    assert list(tmp_path.iterdir()) == [newest]


def refuse(*_args: object, **_kwargs: object) -> None:
    raise OSError(16, "Device or resource busy")


def test_what_cannot_be_read_is_left_and_named_once_but_never_chosen_past(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoints = Checkpoints(tmp_path)
    damaged, older, newest = write(checkpoints, record(5), record(10), record(15))
    (damaged / RECORD_FILE).unlink()
    retention = Retention(checkpoints, "u1")
    assert retention.prune(1, 0) == [older]
    assert retention.prune(1, 0) == []
    assert damaged.exists()
    assert newest.exists()
    [warning] = [entry for entry in caplog.records if entry.levelname == "WARNING"]
    assert str(damaged) in warning.getMessage()
    with pytest.raises(CheckpointError, match="step-00000005"):
        checkpoints.choose(
            "auto", Lineage(run="chat", run_uid="u1", order_fingerprints=("order",), attempt=0, base_step=0)
        )
