"""What tests of several packages share: a real S3 server and a real PostgreSQL, started when the first test asks."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

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


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the `key.pem` and `certificate.pem` of a server on this machine, which vouches for itself."""
    directory = tmp_path_factory.mktemp("pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-keyout", "key.pem", "-out", "certificate.pem", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"],
        cwd=directory, check=True, capture_output=True,
    )  # fmt: skip
    return directory


class PostgresServer:
    """A PostgreSQL of our own: a directory, a unix socket, no network."""

    def __init__(self, binaries: Path, directory: Path) -> None:
        self._binaries = binaries
        self._directory = directory
        self._as_user = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}
        self.url = f"postgresql://ledger@/postgres?host={directory}"

    def create(self) -> None:
        if self._as_user:  # initdb refuses root
            shutil.chown(self._directory, "postgres", "postgres")
        self._call("initdb", "-D", f"{self._directory}/data", "-U", "ledger", "-A", "trust", "-E", "UTF8", "--no-sync")

    def start(self) -> None:
        # synchronous_commit is off, to see that the ledger asks for its own.
        settings = f"-k {self._directory} -c listen_addresses='' -c fsync=off -c synchronous_commit=off"
        log = f"{self._directory}/log"
        self._call("pg_ctl", "-D", f"{self._directory}/data", "-o", settings, "-l", log, "-w", "start")

    def stop(self) -> None:
        self._call("pg_ctl", "-D", f"{self._directory}/data", "-m", "immediate", "-w", "stop")

    def _call(self, program: str, *arguments: str) -> None:
        # pg_ctl's child keeps a pipe open: its output goes to files.
        with tempfile.TemporaryFile() as output:
            done = subprocess.run(
                [self._binaries / program, *arguments], stdout=output, stderr=output, cwd="/", **self._as_user
            )
            output.seek(0)
            assert done.returncode == 0, output.read().decode()


def postgres_binaries() -> Path | None:
    on_path = shutil.which("initdb")
    found = [Path(on_path).parent] if on_path else sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    return found[-1] if found and (found[-1] / "initdb").exists() else None


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    binaries = postgres_binaries()
    if binaries is None:
        absent = "PostgreSQL's server programs (initdb, pg_ctl) are neither on PATH nor in /usr/lib/postgresql/*/bin"
        if os.environ.get("CI") == "true":
            pytest.fail(f"{absent}; CI must have them")
        pytest.skip(absent)
    directory = Path(tempfile.mkdtemp(prefix="ledger-pg-"))
    server = PostgresServer(binaries, directory)
    try:
        server.create()
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(directory)
