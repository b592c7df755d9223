"""How a data server is configured: one TOML file, the environment, flags; each overrides the one before.

    defaults < CONFIG.toml < DATASERVER_<FIELD> < flags

Nothing below the command line reads the environment: `load_config` gets it handed in.
"""

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from dataserver.errors import InvalidConfigError
from dataserver.listening import Address, ListeningConfig, OptionalAddress
from dataserver.render_options import RenderOptions
from dataserver.settings import GivenPath, PathOrUrl, Settings, faults_of

ENVIRONMENT_PREFIX = "DATASERVER_"

# Settings that no single variable of the environment can hold.
TABLES = frozenset({"stores", "tls"})

# protobuf ends the process at 2^31 - 1 bytes; a mebibyte is left for everything that is not tokens.
LARGEST_MESSAGE_BYTES = 2**31 - 2**20


class StoreConfig(Settings):
    """One store that the server owns."""

    path: PathOrUrl
    """A file, a directory of files, or a URL of either: `s3://`, `gs://`, `az://`, `hf://`, `file://`; with `render`
    also `datasets://NAME:SUBSET@SPLIT`. Nothing outside is read, except what links to files inside lead to; the log
    names each of those, and GetStore lists them."""
    loss_mask: Literal["column", "all"] = "column"
    """`column`: the store's own mask. `all`: every token is a target, for continued pretraining."""
    admission: Literal["eager", "lazy"] = "eager"
    """`eager`: every row is checked before the store is served. `lazy`: only footers are read before, and each row
    group or record batch is checked when it is first needed, for stores too large to go through."""
    split: str | None = Field(default=None, min_length=1)
    """The split to serve of a directory that `save_to_disk` of a `DatasetDict` wrote."""
    storage: dict[str, str] = Field(default_factory=dict)
    """Options of the storage behind a URL, such as an endpoint or a region. Credentials are none of them: they come
    from the environment."""
    render: RenderOptions | None = None
    """How conversations become samples, where `path` holds conversations. They are rendered while the server serves
    others, and kept in the index directory: then they are a store like any other. Absent: `path` holds samples."""

    @model_validator(mode="after")
    def _rendered_as_rows_say(self) -> Self:
        if self.render is not None and self.loss_mask != "column":
            raise ValueError(f"loss_mask = {self.loss_mask!r} with render: `render.roles` says what is a target")
        if self.render is not None and self.admission != "eager":
            raise ValueError(f"admission = {self.admission!r} with render: conversations are all read to render them")
        return self


class ServerConfig(ListeningConfig):
    """Everything about a data server that is not decided by a run."""

    listen: Address = "127.0.0.1:50051"
    """Address of the gRPC service. Port 0 takes a free one, which is printed."""
    metrics_listen: OptionalAddress = "127.0.0.1:9464"
    """Address of Prometheus' `/metrics`. Empty: none."""
    ledger: str = Field(default="sqlite:///dataserver.db", min_length=1)
    """URL of the ledger: `sqlite:///FILE` or `postgresql://USER@HOST/DATABASE`."""
    stores: dict[str, StoreConfig] = Field(default_factory=dict)
    """Stores by the name that run specs use."""
    index_dir: GivenPath | None = None
    """Directory of the stores' manifests and indexes. Absent: `~/.cache/dataserver/index` of the server's user."""
    block_cache_bytes: int = Field(default=2**30, ge=2**20)
    """Most bytes of decoded rows of Parquet and compressed Arrow, over all stores of a process, those being decoded
    included. A row group that takes more is refused."""
    disk_cache_dir: GivenPath | None = None
    """Directory of what was fetched from storages, which processes of one machine may share. Absent:
    `~/.cache/dataserver/blocks` of the server's user."""
    disk_cache_bytes: int = Field(default=2**35, ge=0)
    """Most bytes in that directory, over all processes that share it. 0: nothing is kept on disk."""
    workers: int = Field(default=1, ge=1, le=256)
    """Processes that share the address and the ledger."""
    lease_s: float = Field(default=30.0, ge=1.0, le=86400.0)
    """Seconds of silence after which an attempt counts as dead."""
    max_steps_ahead: int = Field(default=1, ge=0, le=64)
    """Steps that are sealed beyond the one that is being consumed. A sync request reaches no sealed step."""
    pacing_wait_s: float = Field(default=3600.0, gt=0)
    """Longest wait of a stream for ranks that have not acknowledged a step, in seconds."""
    credit_wait_s: float = Field(default=3600.0, gt=0)
    """Longest wait of a stream for credits of its own rank, in seconds."""
    shutdown_hold_s: float = Field(default=600.0, ge=0)
    """How long the end of a run is put off while its last weights are wanted and have not landed, in seconds from the
    last step's last acknowledgement; for trainers that take offers."""
    end_wait_s: float = Field(default=600.0, gt=0)
    """Longest wait for a rank to close its stream after the end of the run, in seconds."""
    open_wait_s: float = Field(default=30.0, gt=0)
    """Longest wait for the first message of a stream, in seconds."""
    ledger_wait_s: float = Field(default=60.0, gt=0)
    """Longest wait for the ledger, in seconds; then the call fails and may be tried again."""
    plan_wait_s: float = Field(default=600.0, gt=0)
    """Longest wait for a plan or a micro-batch to be computed, in seconds."""
    drain_s: float = Field(default=20.0, ge=0)
    """Seconds that calls under way get to end after SIGTERM."""
    max_message_bytes: int = Field(default=2**28, ge=2**16, le=LARGEST_MESSAGE_BYTES)
    """Largest message that the server sends, in bytes. A batch spec whose micro-batches could be larger is refused."""
    keepalive_s: float = Field(default=30.0, gt=0, le=86400.0)
    """Seconds after which the server pings a silent client. One that does not answer is disconnected."""
    keepalive_timeout_s: float = Field(default=20.0, gt=0, le=86400.0)
    """Seconds in which a client must answer a ping."""


def load_config(path: Path | None, environment: Mapping[str, str], flags: Mapping[str, Any]) -> ServerConfig:
    """The resolved configuration. `flags` holds what was given on the command line only.

    Stores of flags are added to those of the file. Raises `InvalidConfigError`.
    """
    settings = _read_toml(path) if path is not None else {}
    for name in ServerConfig.model_fields:
        variable = ENVIRONMENT_PREFIX + name.upper()
        if variable not in environment:
            continue
        if name in TABLES:
            raise InvalidConfigError(f"{variable} is set, but [{name}] is a table: write it in the configuration file")
        settings[name] = environment[variable]
    stores = settings.get("stores", {})
    if not isinstance(stores, dict):
        raise InvalidConfigError(
            f"{path}: stores is no table: write one for each store, under its name, as in [stores.chat], with its path"
        )
    settings |= flags
    if stores:
        settings["stores"] = {**stores, **flags.get("stores", {})}
    return parse_config(settings)


def parse_config(settings: Mapping[str, Any]) -> ServerConfig:
    """Check `settings`; raise `InvalidConfigError` naming each field that is wrong."""
    try:
        return ServerConfig.model_validate(settings)
    except ValidationError as error:
        raise InvalidConfigError(f"configuration refused: {faults_of(error, 'configuration')}") from error


def _read_toml(path: Path) -> dict[str, Any]:
    """The file's settings. Relative paths in it are relative to the working directory."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidConfigError(f"cannot read configuration {path}: {error.strerror}") from error
    except ValueError as error:
        raise InvalidConfigError(f"{path} is no TOML: {error}") from error


def describe_config(config: ServerConfig) -> list[str]:
    """One line per setting, for people. A password in the ledger's URL is left out."""
    lines = []
    for name, value in config.model_dump(mode="json").items():
        if name == "stores":
            lines += [f"stores.{store} = {json.dumps(settings)}" for store, settings in value.items()]
        else:
            lines.append(f"{name} = {json.dumps(hide_password(value) if name == 'ledger' else value)}")
    return lines


def hide_password(url: str) -> str:
    """`url` with `***` in place of a password, before the host or in the query."""
    return re.sub(r"(://[^/@:]*):.*@|([?&]\w*password=)[^&]*", lambda found: _masked(*found.groups()), url)


def _masked(before_host: str | None, in_query: str | None) -> str:
    return f"{in_query}***" if in_query else f"{before_host}:***@"
