"""One server for all hostile tests of a file; after each of them it must serve as before."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "crash")]

if TYPE_CHECKING:
    from hostilelab.victim import VictimServer
    from hostilelab.wire import Wire

ROWS = 70


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator["VictimServer"]:
    from crashlab.samples import write_rows
    from hostilelab.victim import VictimServer

    directory = tmp_path_factory.mktemp("hostile")
    write_rows(directory / "store", ROWS)
    with VictimServer(directory, directory / "store") as server:
        yield server


@pytest.fixture
def wire(server: "VictimServer") -> Iterator["Wire"]:
    from hostilelab.wire import Wire

    wire = Wire(server.endpoint)
    yield wire
    wire.close()


@pytest.fixture(autouse=True)
def serves_afterwards(server: "VictimServer") -> Iterator[None]:
    from hostilelab.customer import consume_an_epoch

    yield
    assert server.alive
    assert sorted(consume_an_epoch(server.endpoint, ROWS)) == list(range(ROWS))
    assert "Traceback" not in server.log.read_text()
