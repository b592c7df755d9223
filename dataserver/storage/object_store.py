"""`s3://`, `gs://`, `az://`, by obstore (Rust's object_store): reading needs no interpreter lock.

Each request carries the version that it expects, and each answer is compared with it as well, for
servers that do not know the condition. Waits and retries are `retrying`'s.
"""

import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import cache, partial
from typing import TYPE_CHECKING

import obstore
from obstore.exceptions import (
    BaseError,
    InvalidPathError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)

from dataserver.errors import InvalidConfigError, StoreNotFoundError, StoreRefusedError
from dataserver.storage.objects import ObjectInfo
from dataserver.storage.retrying import (
    Attempts,
    ChangedError,
    DeniedError,
    MissingError,
    ReadPolicy,
    RejectedError,
    StorageFaultError,
    TransientError,
)

if TYPE_CHECKING:  # types without a run-time form
    from obstore import GetOptions, ObjectMeta
    from obstore.store import ClientConfig, ObjectStore, RetryConfig

    Connect = Callable[[ClientConfig, RetryConfig], ObjectStore]

# Small enough that a broken answer costs little to continue, big enough that the pieces cost nothing.
_PIECE_BYTES = 1 << 20
_LIST_CHUNK = 1000

# Answers that say "other credentials, please" without saying it by 401 or 403.
_EXPIRED = {"ExpiredToken", "TokenRefreshRequired", "RequestExpired", "InvalidToken", "ExpiredTokenException"}
_PASSING = {408, 409, 425, 429}
_NO_ETAG = "unnamed-"
_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w+)</Code>")
# What our own lookup of credentials said, which passed through the library.
_LOOKUP = re.compile(rf"{DeniedError.__name__}: ([^\n]*)")
_REASON = re.compile(r'message: "([^"]*)"|kind: (Timeout|Connect|Request|Decode|Interrupted)')


class ObjectStorage:
    """Objects of a bucket below a prefix; see `objects.WritableStorage`.

    `connect(client, retries)` makes obstore's store, with credentials looked up anew.
    """

    def __init__(self, url: str, connect: "Connect", policy: ReadPolicy) -> None:
        self.url = url
        self._connect = connect
        self._policy = policy
        self._lock = threading.Lock()
        self._store: ObjectStore | None = None
        self._generation = 0

    def stat(self, path: str) -> ObjectInfo:
        """See `objects.Storage`."""
        return self._attempts(path).run(lambda: self._look(path))

    def read(self, info: ObjectInfo, begin: int, end: int) -> bytes:
        """See `objects.Storage`."""
        return self._attempts(info.path).read(lambda at, end: self._fetch(info, at, end), info, begin, end)

    def list(self) -> list[ObjectInfo]:
        """See `objects.Storage`. What consoles leave to show an empty folder is no object."""
        infos = self._attempts("", "listed").run(lambda: _list(self._connected()))
        files = [info for info in infos if info.size > 0 or not self._is_folder_mark(info)]
        return sorted(files, key=lambda info: info.path)

    def put(self, path: str, data: bytes) -> None:
        """See `objects.WritableStorage`."""
        self._attempts(path, "written").run(partial(self._write, path, data))

    def delete(self, paths: Sequence[str]) -> None:
        """See `objects.WritableStorage`."""
        attempts = self._attempts("", "deleted")
        for path in paths:
            with suppress(StoreNotFoundError):
                attempts.run(partial(self._remove, path))

    def _attempts(self, path: str, done: str = "read") -> Attempts:
        what = f"{self.url}/{path}".rstrip("/")
        return Attempts(f"'{what}'", self._policy, partial(self._renew, self._generation), done=done)

    def _connected(self) -> "ObjectStore":
        _check_process()
        with self._lock:
            if self._store is None:
                timeouts: ClientConfig = {
                    "allow_http": True,  # for an endpoint that says http; others stay https
                    "connect_timeout": timedelta(seconds=min(10.0, self._policy.stall_s)),
                    "read_timeout": timedelta(seconds=self._policy.stall_s),
                    "timeout": timedelta(seconds=self._policy.deadline_s),
                }
                try:
                    self._store = self._connect(timeouts, {"max_retries": 0})
                except (BaseError, ValueError) as error:
                    raise RejectedError(str(error).partition("\n")[0]) from None
            return self._store

    def _renew(self, generation: int) -> None:
        """Let the next request look up credentials anew, once for all who were refused with the same ones."""
        with self._lock:
            if generation == self._generation:
                self._store = None
                self._generation += 1

    def _is_folder_mark(self, info: ObjectInfo) -> bool:
        """`folder/` is listed like an empty object `folder`, but there is none of that name."""
        with suppress(StoreNotFoundError):
            self.stat(info.path)
            return False
        return True

    def _write(self, path: str, data: bytes) -> None:
        # In one request: parts of one that broke off would stay, and be paid for.
        with _faults_told():
            obstore.put(self._connected(), path, data, use_multipart=False)

    def _remove(self, path: str) -> None:
        with _faults_told():
            obstore.delete(self._connected(), path)

    def _look(self, path: str) -> ObjectInfo:
        with _faults_told():
            return _info(path, obstore.head(self._connected(), path))

    def _fetch(self, info: ObjectInfo, begin: int, end: int) -> Iterator[memoryview]:
        with _faults_told():
            asked: GetOptions = {"if_match": _condition(info.version), "range": (begin, end)}
            answer = obstore.get(self._connected(), info.path, options=asked)
            now = _info(info.path, answer.meta)
            if now != info:
                raise ChangedError(f"its version was {info.version} and is {now.version}")
            if answer.range != (begin, end):
                raise TransientError(f"asked for bytes {begin} to {end}, answered {answer.range}")
            for piece in answer.stream(min_chunk_size=_PIECE_BYTES):
                yield memoryview(piece)


@cache
def _home() -> int:
    """The process that used obstore first: its threads live there, and in no child that is forked from it."""
    return os.getpid()


def _check_process() -> None:
    """Refuse what would wait for ever."""
    if _home() != os.getpid():
        raise InvalidConfigError(
            f"Object storage was read in process {_home()}, from which this one was forked, and its connections do not "
            "survive that. Start workers by 'spawn' or 'forkserver', or before the first read."
        )


# No store has as many; a shard is some hundred megabytes.
_MOST_OBJECTS = 1_000_000


def _list(store: "ObjectStore") -> list[ObjectInfo]:
    """All objects. A listing that goes in circles, or on for ever, is refused and not followed."""
    found: dict[str, ObjectInfo] = {}
    with _faults_told():
        for chunk in obstore.list(store, chunk_size=_LIST_CHUNK):
            for meta in chunk:
                if meta["path"] in found:
                    raise StoreRefusedError(f"The storage lists '{meta['path']}' twice: its listing goes in circles.")
                found[meta["path"]] = _info(meta["path"], meta)
            if len(found) > _MOST_OBJECTS:
                raise StoreRefusedError(
                    f"The storage lists more than {_MOST_OBJECTS:,} objects here: name a longer prefix, or write "
                    "fewer, larger files."
                )
    return list(found.values())


def _info(path: str, meta: "ObjectMeta") -> ObjectInfo:
    etag = meta["e_tag"]
    version = etag.strip('"') if etag else f"{_NO_ETAG}{meta['size']}-{meta['last_modified'].isoformat()}"
    return ObjectInfo(path=path, size=meta["size"], version=version)


def _condition(version: str) -> str | None:
    """What a request says about the version; weak etags match no condition."""
    return None if version.startswith((_NO_ETAG, "W/")) else f'"{version}"'


@contextmanager
def _faults_told() -> Iterator[None]:
    """Tell the errors of obstore as faults. Their texts hold URLs, which may hold signatures: only parts are told."""
    try:
        yield
    except FileNotFoundError as error:
        raise MissingError(_described(error)) from None
    except PreconditionError as error:
        raise ChangedError(_described(error)) from None
    except (PermissionDeniedError, UnauthenticatedError) as error:
        raise DeniedError(_described(error)) from None
    except InvalidPathError as error:
        raise StoreRefusedError(f"An object's name is no path ({_described(error)}).") from None
    except (BaseError, OSError) as error:
        raise _fault(error) from None


def _fault(error: Exception) -> StorageFaultError:
    status, code = _answer(error)
    told = _described(error)
    if code in _EXPIRED or status in {401, 403}:
        return DeniedError(told)
    if status == 404:
        return MissingError(told)
    if status == 416:
        return ChangedError("it is shorter than it was")
    if 300 <= status < 500 and status not in _PASSING:
        return RejectedError(told)
    return TransientError(told)


def _answer(error: Exception) -> tuple[int, str]:
    """HTTP status and the storage's own code; 0 and nothing where no answer came."""
    text = str(error)
    status, code = _STATUS.search(text), _CODE.search(text)
    return int(status[1]) if status else 0, code[1] if code else ""


def _described(error: Exception) -> str:
    status, code = _answer(error)
    if status:
        return f"HTTP {status} {code}".rstrip()
    if lookup := _LOOKUP.search(str(error)):
        return lookup[1]
    reasons = [message or kind for message, kind in _REASON.findall(str(error))]
    return reasons[-1].lower() if reasons else type(error).__name__
