"""What an orchestrator asks of an inference engine, whatever it is made of.

An engine serves one version of the weights, whole. To give it another, in this order:

    compare          optional: the announced names, types and shapes are compared with the model, while it serves
    abort_requests   what nobody wants any more; only while it is not paused
    pause            what is in flight freezes and is kept
    begin_update     the announced names, types and shapes are compared with the model, then the update opens
    receive          loads the weights while the trainer sends them; returns their checksum
    finish_update    makes them the engine's own and publishes their label
    reset_prefix_cache
    resume           what was frozen goes on, on the new weights

Between `begin_update` and `finish_update` an engine can serve nothing: whoever leaves the
order there restarts it. `EngineStatus.update_open` tells.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from dataserver.weight_buckets import TensorSpec


class Transport(StrEnum):
    """The way that weights take."""

    FILESYSTEM = "filesystem"
    GLOO = "gloo"
    NCCL = "nccl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """One sync, as one engine sees it.

    `rendezvous` (HOST:PORT of the trainer's rank 0), `group_size` and `first_rank` (of this engine's
    workers, from 1) are those of the group of gloo and nccl; `directory` is that of the files.
    `bucket_bytes` bounds a message: tensors are packed in order, a larger one travels alone.
    `deadline_s`: seconds from now in which the whole of it has to arrive.
    """

    sync_id: str
    transport: Transport
    tensors: tuple[TensorSpec, ...]
    bucket_bytes: int
    deadline_s: float
    rendezvous: str = ""
    group_size: int = 0
    first_rank: int = 0
    directory: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStatus:
    """How an engine is; of an unhealthy one nothing else is known but `detail`, why it is.

    `paused`: it makes no tokens, as it is paused or asleep. `label`: that of its last finished update; None when there
    was none since its start.
    `workers`: processes that hold weights, over tensor, pipeline and data parallel ranks.
    """

    healthy: bool
    paused: bool = False
    update_open: bool = False
    label: str | None = None
    workers: int = 0
    model: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How to sample `n` completions of one prompt. `top_k` 0: of all tokens. `seed` None: another each time."""

    max_tokens: int
    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    logprobs: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionSpan:
    """So many tokens, one after another, of the weights with that label; None: those the engine started with."""

    label: str | None
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One sample. `finish_reason`: `stop` or `length`. `versions` covers `token_ids` in order.

    `logprobs`: of each token, before temperature and cuts; None if not asked for.
    """

    text: str
    token_ids: tuple[int, ...]
    finish_reason: str
    versions: tuple[VersionSpan, ...]
    logprobs: tuple[float, ...] | None = None


class Engine(Protocol):
    """An inference engine. Every call has a deadline and raises a subclass of `EngineError`."""

    @property
    def name(self) -> str:
        """How configuration, log and results call it."""

    @property
    def url(self) -> str:
        """Where it is."""

    async def status(self) -> EngineStatus:
        """How it is; an engine that does not answer is unhealthy, which is no error."""

    async def abort_requests(self) -> int:
        """Gives up what is in flight and says how many. Not while paused: that has crashed engines."""

    async def compare(self, transfer: Transfer) -> None:
        """Compares what is announced with the model; changes nothing.

        Raises `WeightsMismatchError` or `EngineRefusedError`.
        """

    async def pause(self) -> None:
        """Freezes what is in flight. Refused where somebody else paused the engine, or put it to sleep."""

    async def resume(self) -> None:
        """Goes on; may be repeated. Only when no update is open."""

    async def begin_update(self, transfer: Transfer) -> None:
        """Compares what is announced with the model, then opens the update of a paused engine.

        Raises `WeightsMismatchError` or `EngineRefusedError` when the engine is as it was, `UpdateFailedError` when
        the update may be open.
        """

    async def receive(self, transfer: Transfer) -> str:
        """Loads the weights while they are sent and returns their checksum, 32 hexadecimal digits.

        Takes part in a collective: never repeated. Raises `UpdateFailedError`.
        """

    async def finish_update(self, label: str) -> None:
        """Makes the new weights the engine's own and labels them; raises `UpdateFailedError`, and is not repeated."""

    async def reset_prefix_cache(self) -> None:
        """Forgets what the old weights computed, and checks that it did."""

    async def restart(self) -> None:
        """Has its process ended and started anew, and waits until it is healthy. It comes back without label."""

    async def tokenize(self, prompt: str | Sequence[Mapping[str, str]]) -> tuple[int, ...]:
        """Token ids of a text, or of chat messages (`role`, `content`) up to the assistant's turn."""

    async def generate(self, token_ids: Sequence[int], sampling: SamplingParams) -> tuple[Completion, ...]:
        """`sampling.n` completions; raises `GenerationAbortedError` when one of them did not come to its end."""

    async def close(self) -> None:
        """Lets go of connections; the engine itself goes on."""
