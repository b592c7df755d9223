"""What tests of several packages share: a real S3 server, started when the first test asks for it."""

from collections.abc import Iterator

import pytest

from benchmarks.s3_server import S3Server, running_s3


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    with running_s3() as server:
        yield server


@pytest.fixture
def s3(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """The S3 server, with its credentials in this process's environment as a user would have them."""
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    return s3_server
