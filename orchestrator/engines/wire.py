"""What goes to vLLM and comes from it, as JSON."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from dataserver.weight_buckets import TensorSpec
from orchestrator.engines.interface import Completion, SamplingParams, Transfer, Transport, VersionSpan
from orchestrator.errors import EngineRefusedError, GenerationAbortedError

T = TypeVar("T")

# How vLLM labels the weights that it was started with.
FIRST_LABEL = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferReport:
    """Where a worker stands in a transfer. `problem`: why it refused or lost it; `checksum`: of all that it loaded."""

    sync_id: str
    open: bool
    problem: str
    checksum: str


def init_request(transfer: Transfer) -> dict[str, Any]:
    """What announces a transfer to a worker, where `parse_transfer` reads it."""
    return {"transfer": {**asdict(transfer), "tensors": [[t.name, t.dtype, list(t.shape)] for t in transfer.tensors]}}


def parse_transfer(fields: Mapping[str, Any]) -> Transfer:
    """The other side of `init_request`; raises ValueError."""
    try:
        tensors = tuple(
            TensorSpec(name=str(name), dtype=str(dtype), shape=tuple(int(size) for size in shape))
            for name, dtype, shape in fields["tensors"]
        )
        return Transfer(**{**fields, "transport": Transport(fields["transport"]), "tensors": tensors})
    except (TypeError, KeyError) as error:
        raise ValueError(f"no transfer of weights: {error}") from error


def parse_reports(engine: str, answer: Mapping[str, Any]) -> list[TransferReport]:
    """One report per worker."""
    try:
        return [
            TransferReport(
                sync_id=str(each["sync_id"]),
                open=bool(each["open"]),
                problem=str(each["problem"]),
                checksum=str(each["checksum"]),
            )
            for each in answer["results"]
        ]
    except (KeyError, TypeError) as error:
        raise unreadable(engine, "transfer_report", answer) from error


def generate_request(token_ids: Sequence[int], sampling: SamplingParams) -> dict[str, Any]:
    """The body of `/inference/v1/generate`."""
    params: dict[str, Any] = {
        "max_tokens": sampling.max_tokens,
        "n": sampling.n,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "stop": list(sampling.stop),
    }
    if sampling.seed is not None:
        params["seed"] = sampling.seed
    if sampling.logprobs:
        params["logprobs"] = 0
    return {"token_ids": list(token_ids), "sampling_params": params, "output_mode": "text"}


def parse_completions(engine: str, answer: Mapping[str, Any]) -> tuple[Completion, ...]:
    """The samples, in order; raises `GenerationAbortedError` when one did not come to its end."""
    try:
        choices = sorted(answer["choices"], key=lambda choice: int(choice["index"]))
        found = tuple(_completion(choice) for choice in choices)
    except (KeyError, TypeError, ValueError) as error:
        raise unreadable(engine, "generate", answer) from error
    for completion in found:
        if completion.token_ids and not completion.versions:
            what = "its answer does not say which weights made the tokens: start vLLM with --enable-scale-out"
            raise EngineRefusedError(engine, "generate", what)
        if completion.finish_reason not in {"stop", "length"}:
            what = f"a sample ended with {completion.finish_reason!r} after {len(completion.token_ids)} tokens"
            raise GenerationAbortedError(engine, "generate", what)
    return found


def parse_label(label: str) -> str | None:
    """The label of an engine's weights; None for those it was started with."""
    return None if label == FIRST_LABEL else label


def parsed(engine: str, call: str, answer: Any, parse: Callable[[Any], T]) -> T:  # noqa: ANN401 - any JSON
    """What `parse` makes of a part of an answer; raises `EngineRefusedError` where that is not what it should be."""
    try:
        return parse(answer)
    except (LookupError, TypeError, ValueError) as error:
        raise unreadable(engine, call, answer) from error


def unreadable(engine: str, call: str, answer: object) -> EngineRefusedError:
    """The fault of an answer that is not what its version of vLLM gives."""
    what = f"answers with something unknown, {str(answer)[:200]}; docs/engines.md names the version of vLLM"
    return EngineRefusedError(engine, call, what)


def _completion(choice: Mapping[str, Any]) -> Completion:
    logprobs = choice.get("logprobs")
    return Completion(
        text=str(choice["text"]),
        token_ids=tuple(int(token) for token in choice["token_ids"]),
        finish_reason=str(choice["finish_reason"]),
        versions=tuple(
            VersionSpan(label=parse_label(str(span["version"])), tokens=int(span["end"]) - int(span["start"]))
            for span in choice["weight_versions"] or ()
        ),
        logprobs=None if logprobs is None else tuple(float(each["logprob"]) for each in logprobs["content"]),
    )
