"""`hf://`: a repository of the Hugging Face Hub, read at one commit.

    hf://datasets/ORG/NAME[@REVISION][/PREFIX]

The commit that the revision stands for when it is first looked at is the one that is read from then
on, so the files of a store belong together. What is there of a commit never changes; a file is
another version where its content has another hash.
"""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from huggingface_hub import HfApi, RepoFile, hf_hub_url
from huggingface_hub.errors import (
    EntryNotFoundError,
    HfHubHTTPError,
    HTTPError,  # the base of what its HTTP library raises, whichever that is
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import build_hf_headers, get_session

from dataserver.errors import InvalidConfigError
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

OPTIONS = ("endpoint",)

_PIECE_BYTES = 1 << 20
_URL = re.compile(
    r"hf://(?:(datasets|models|spaces)/)?((?!datasets/|models/|spaces/)[^/@]+/[^/@]+)(?:@([^/]+))?(?:/(.+))?"
)


class HubStorage:
    """Files of a repository below a prefix; see `objects.Storage`. `endpoint`: another Hub than the public one."""

    def __init__(self, url: str, endpoint: str | None, policy: ReadPolicy) -> None:
        parts = _URL.fullmatch(url)
        if parts is None:
            raise InvalidConfigError(f"'{url}' names no repository: write hf://datasets/ORG/NAME, @REVISION and /PATH.")
        kind, self._repository, self._revision, prefix = parts.groups()
        self._kind = (kind or "models").removesuffix("s")
        self._prefix = f"{prefix}/" if prefix else ""
        self.url = url
        self._endpoint = endpoint
        self._policy = policy
        self._hub = HfApi(endpoint=endpoint)
        self._lock = threading.Lock()
        self._commit_id: str | None = None
        self._known: dict[str, ObjectInfo] = {}

    def stat(self, path: str) -> ObjectInfo:
        """See `objects.Storage`."""
        return self._attempts(path).run(lambda: self._look(path))

    def read(self, info: ObjectInfo, begin: int, end: int) -> bytes:
        """See `objects.Storage`."""
        return self._attempts(info.path).read(lambda at, end: self._fetch(info, at, end), info, begin, end)

    def list(self) -> list[ObjectInfo]:
        """See `objects.Storage`."""
        return sorted(self._attempts("").run(self._walk), key=lambda info: info.path)

    def _attempts(self, path: str) -> Attempts:
        what = f"{self.url}/{path}".rstrip("/")
        # Nothing to renew: the library looks for a token at every request.
        return Attempts(f"'{what}'", self._policy, refresh=lambda: None)

    def _commit(self) -> str:
        with self._lock:
            if self._commit_id is None:
                with _faults_told():
                    found = self._hub.repo_info(self._repository, repo_type=self._kind, revision=self._revision).sha
                self._commit_id = str(found)
            return self._commit_id

    def _walk(self) -> "tuple[ObjectInfo, ...]":
        commit = self._commit()
        folder = self._prefix.rstrip("/") or None
        try:
            with _faults_told():
                tree = self._hub.list_repo_tree(
                    self._repository, folder, recursive=True, revision=commit, repo_type=self._kind
                )
                entries = tuple(tree)
        except MissingError:
            return ()
        files = (entry for entry in entries if isinstance(entry, RepoFile) and entry.path.startswith(self._prefix))
        return tuple(self._info(file) for file in files)

    def _look(self, path: str) -> ObjectInfo:
        commit = self._commit()
        with self._lock:
            if path in self._known:
                return self._known[path]
        with _faults_told():
            entries = self._hub.get_paths_info(
                self._repository, [self._prefix + path], revision=commit, repo_type=self._kind
            )
        for entry in entries:
            if isinstance(entry, RepoFile):
                return self._info(entry)
        raise MissingError("no such file")

    def _info(self, file: RepoFile) -> ObjectInfo:
        version = file.lfs.sha256 if file.lfs else file.blob_id
        info = ObjectInfo(path=file.path.removeprefix(self._prefix), size=file.size, version=version)
        with self._lock:
            self._known[info.path] = info
        return info

    def _fetch(self, info: ObjectInfo, begin: int, end: int) -> Iterator[memoryview]:
        now = self._look(info.path)
        if now != info:
            raise ChangedError(f"its version was {info.version} and is {now.version}")
        url = hf_hub_url(
            self._repository,
            self._prefix + info.path,
            repo_type=self._kind,
            revision=self._commit(),
            endpoint=self._endpoint,
        )
        headers = build_hf_headers() | {"Range": f"bytes={begin}-{end - 1}", "Accept-Encoding": "identity"}
        with (
            _faults_told(),
            get_session().stream(
                "GET", url, headers=headers, follow_redirects=True, timeout=self._policy.stall_s
            ) as answer,
        ):
            if answer.status_code != 206:
                raise _fault(answer.status_code)
            for piece in answer.iter_raw(_PIECE_BYTES):
                yield memoryview(piece)


@contextmanager
def _faults_told() -> Iterator[None]:
    """Tell the errors of the Hub's library as faults; their texts, which may hold signed URLs, are left out."""
    try:
        yield
    except (EntryNotFoundError, RevisionNotFoundError) as error:
        raise MissingError(type(error).__name__) from None
    except RepositoryNotFoundError as error:
        # The Hub does not tell a private repository from none.
        raise DeniedError(f"{type(error).__name__}: no such repository, or a private one") from None
    except HfHubHTTPError as error:
        raise _fault(error.response.status_code) from None
    except (HTTPError, OSError) as error:
        raise TransientError(type(error).__name__) from None


def _fault(status: int) -> StorageFaultError:
    told = f"HTTP {status}"
    if status in {401, 403}:
        return DeniedError(told)
    if status == 404:
        return MissingError(told)
    if status in {408, 429} or status >= 500:
        return TransientError(told)
    return RejectedError(told)
