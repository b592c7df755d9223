"""An SQLite ledger whose file is taken away while a server has it open."""

import shutil
from pathlib import Path

import pytest

from dataserver.database import Database
from dataserver.errors import PreconditionError
from dataserver.ledger import open_ledger
from dataserver.ledger.database import open_database


def nothing(_connection: object) -> None:
    pass


@pytest.fixture
def opened(tmp_path: Path):
    database = open_database(f"sqlite:///{tmp_path}/ledger.db")
    yield database, Path(database.place)
    database.close()


@pytest.mark.parametrize("way", ["write", "note", "read"])
def test_a_ledger_that_was_removed_is_noticed(opened: tuple[Database, Path], way: str) -> None:
    database, path = opened
    path.unlink()
    with pytest.raises(PreconditionError, match=r"ledger\.db: the file was removed while it was open here"):
        getattr(database, way)(nothing)
    assert not path.exists()


def test_a_ledger_that_was_replaced_is_noticed_and_the_other_is_left_alone(opened: tuple[Database, Path]) -> None:
    database, path = opened
    moved = path.rename(path.with_name("moved.db"))
    open_ledger(f"sqlite:///{path}", lease_s=30).close()
    replacement = path.read_bytes()
    with pytest.raises(PreconditionError, match="the file was replaced by another"):
        database.write(nothing)
    assert path.read_bytes() == replacement
    assert moved.exists()


def test_a_copy_in_its_place_is_another_file(opened: tuple[Database, Path]) -> None:
    database, path = opened
    shutil.copy(path, copy := path.with_name("copy.db"))
    copy.replace(path)
    with pytest.raises(PreconditionError, match="restart this process"):
        database.write(nothing)


def test_a_ledger_that_was_moved_back_goes_on(opened: tuple[Database, Path]) -> None:
    database, path = opened
    moved = path.rename(path.with_name("moved.db"))
    with pytest.raises(PreconditionError):
        database.write(nothing)
    moved.rename(path)
    database.write(nothing)
