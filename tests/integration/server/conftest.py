"""Servers on a real socket, and a job that talks to them."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from dataserver.testing import RunningServer, running_server, write_store

sys.path.insert(0, str(Path(__file__).parent))

from serverlab import LENGTHS, Job, job_on


@pytest.fixture(scope="session")
def chat_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_store(tmp_path_factory.mktemp("stores") / "chat", lengths=LENGTHS)


@pytest.fixture
def serve(chat_store: Path) -> Iterator[Callable[..., RunningServer]]:
    """Start servers that stop with the test."""
    with ExitStack() as stack:
        settings = {"metrics_listen": "127.0.0.1:0"}
        yield lambda **config: stack.enter_context(running_server({"chat": chat_store}, **settings | config))


@pytest.fixture
def server(serve: Callable[..., RunningServer]) -> RunningServer:
    return serve()


@pytest.fixture
def job(server: RunningServer) -> Iterator[Job]:
    with job_on(server) as job:
        yield job
