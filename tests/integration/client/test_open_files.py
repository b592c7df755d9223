"""A server that may open no more files says so, and goes on when it may."""

import resource
from pathlib import Path

import pytest

from dataserver.errors import UnavailableError


def test_a_server_without_file_descriptors_names_the_limit_and_goes_on_when_there_are_some(
    serve, connect, spec
) -> None:
    server = serve()
    client = connect(server.endpoint, patience_s=2.0)
    client.list_stores()
    pid = server._process.pid
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    used = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (used, hard))
    with pytest.raises(UnavailableError, match=rf"its limit of {used} file descriptors is reached.*ulimit -n"):
        client.create_run("r", spec)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
    assert client.create_run("r", spec).name == "r"
