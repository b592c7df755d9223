"""`[weights]`: how weights leave the trainer for inference engines, and how long anything may take."""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from dataserver.listening import LOOPBACK_HOSTS, Address, CalleeConfig, ExposedConfig, split_address
from dataserver.settings import PathOrUrl
from dataserver.storage import is_writable

# Where a server may listen, and nobody can call.
ANY_HOST = frozenset({"0.0.0.0", "::"})  # noqa: S104 - it is refused

# An abort that does not arrive is no loss: a prepare that no commit follows expires by itself.
ABORT_S = 5.0

# How long an object storage may take before a transfer, to tell what lies there and remove what is over; and as long
# once more after one, to take the marker and remove the files.
STORAGE_S = 120.0


class TransportKind(StrEnum):
    """The way that weights take."""

    FILESYSTEM = "filesystem"
    GLOO = "gloo"
    NCCL = "nccl"


class ServingType(StrEnum):
    """In which type engines hold weights."""

    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"


class WeightsConfig(ExposedConfig):
    """`[weights]`: how weights reach the inference engines. Training is the same with it and without, to the bit."""

    transport: TransportKind
    """`filesystem`: safetensors in `directory`, written by all ranks side by side. `gloo`: broadcasts from rank 0 over
    TCP, for CPUs. `nccl`: broadcasts from rank 0 between GPUs; needs vLLM installed beside the trainer, and is not
    verified on GPUs yet. The orchestrator must be configured alike."""
    dtype: ServingType | None = None
    """In which type weights are sent, that of the engines; that of the computation unless given."""
    bucket_bytes: int = Field(default=256 * 1024 * 1024, ge=1, le=2**31 - 1)
    """Weights are gathered and sent in buckets of at most so many bytes; whoever sends holds three at a time. A larger
    weight is a bucket of its own."""
    directory: PathOrUrl | None = None
    """With `filesystem`: where the files lie while they are needed: on a filesystem that ranks and engines share, or in
    an object storage, `s3://BUCKET/PREFIX`, `gs://`, `az://`, for which ranks and engines have credentials, region and
    endpoint in their environment. Each run has a directory of its own below it, from which the trainer deletes what
    syncs left behind."""
    listen: Address = "127.0.0.1:0"
    """Where rank 0 answers the orchestrator; port 0 takes a free one. The groups of `gloo` and `nccl` meet on the same
    host, at a free port."""
    advertise_host: str | None = Field(default=None, min_length=1)
    """By which name or address orchestrator and engines reach rank 0; the host of `listen` unless given."""
    insecure: bool = False
    """Listen beyond loopback without TLS or without a token; or with `gloo` or `nccl`, whose groups ask nobody who
    joins, and move weights in plain text: on a private network only."""
    orchestrator: CalleeConfig = CalleeConfig()
    """How the orchestrator is called; its address comes with each stamp."""
    prepare_s: float = Field(default=30, gt=0)
    """How long the engines may take to get ready; then the transfer is skipped."""
    send_s: float = Field(default=300, gt=0)
    """How long gathering and sending may take; then the transfer has failed."""
    commit_s: float = Field(default=300, gt=0)
    """How long the engines may take to serve what was sent. Training goes on meanwhile; the next transfer and the end
    of the job wait for it."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.transport is TransportKind.FILESYSTEM) != (self.directory is not None):
            given = "no directory" if self.directory is None else f"directory = {str(self.directory)!r}"
            raise ValueError(
                f"transport = {self.transport.value!r} with {given}: 'filesystem' needs one, the others have none"
            )
        if isinstance(self.directory, str) and not is_writable(self.directory):
            raise ValueError(
                f"directory = {self.directory!r} is no storage that weights are written to: name a directory that "
                "ranks and engines share, or s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX"
            )
        host = self.listen_host
        if host not in LOOPBACK_HOSTS and not self.insecure and self.transport is not TransportKind.FILESYSTEM:
            raise ValueError(
                f"listen = {self.listen!r} is reachable from other machines, and a group of {self.transport.value!r} "
                "asks nobody who joins: listen on 127.0.0.1, use 'filesystem', or, on a private network, say insecure"
            )
        if host in ANY_HOST and self.advertise_host is None:
            raise ValueError(f"listen = {self.listen!r} is no address that can be called: set advertise_host")
        return self

    def refuse_overlap(self, run: str, kept: Mapping[str, Path | None]) -> None:
        """What lasts lies outside the directory that syncs are deleted from, and that outside of what lasts.

        `kept`: where it lies, by the field that says so. Raises `ValueError`.
        """
        if not isinstance(self.directory, Path):
            return
        synced = self.directory / run
        for field, path in kept.items():
            if path is None:
                continue
            one, other = synced.resolve(), path.resolve()
            if one.is_relative_to(other) or other.is_relative_to(one):
                raise ValueError(
                    f"{field} = {str(path)!r} and {str(synced)!r}, where weights.directory has this run's transfers "
                    "until they are deleted, lie one in the other: give weights.directory a directory of its own"
                )

    @property
    def listen_host(self) -> str:
        """Where rank 0 listens."""
        return split_address(self.listen)[0]

    @property
    def called_host(self) -> str:
        """By which host the others reach rank 0."""
        return self.listen_host if self.advertise_host is None else self.advertise_host

    @property
    def longest_wait_s(self) -> float:
        """How long the other ranks wait for rank 0 in a collective at worst, the end of the sync before included."""
        return self.commit_s + ABORT_S + self.storage_s + self.prepare_s + self.send_s

    @property
    def storage_s(self) -> float:
        """How much of that an object storage may take, if there is one."""
        return 2 * STORAGE_S if isinstance(self.directory, str) else 0.0
