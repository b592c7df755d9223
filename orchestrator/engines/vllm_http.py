"""vLLM behind HTTP, as an `Engine`.

It is driven by the development endpoints of `vllm serve` (VLLM_SERVER_DEV_MODE=1) and by
`/inference/v1/generate` (--enable-scale-out), the one endpoint that tells which weights made which
token. Its workers run `orchestrator.vllm_plugin`, which compares and checks what arrives and reports
it through `transfer_report`. docs/engines.md shows the whole command.

Which calls are repeated when no answer came: those that end in the same state twice. Never those of an
update, which takes part in a collective that nobody enters a second time, and never a generation, whose
caller asks another engine.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.engines.http_calls import HttpCalls
from orchestrator.engines.interface import Completion, EngineStatus, SamplingParams, Transfer
from orchestrator.engines.restart import run_restart
from orchestrator.engines.wire import (
    TransferReport,
    generate_request,
    init_request,
    parse_completions,
    parse_label,
    parse_reports,
    parsed,
    unreadable,
)
from orchestrator.errors import EngineError, EngineRefusedError, UpdateFailedError, WeightsMismatchError

# All that a status asks for, together.
STATUS_LIMIT_S = 10.0
# A worker keeps to the transfer's deadline by itself; its answer may come this much later.
GRACE_S = 10.0
RESET_ATTEMPTS = 20
RESET_PAUSE_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmLimits:
    """Deadlines in seconds: of a control call, of one generation, of a restart until it is healthy."""

    control_s: float = 60.0
    generate_s: float = 1800.0
    restart_s: float = 600.0


class VllmEngine:
    """One `vllm serve`. `restart` is the command that ends it and starts it anew; empty: nobody can.

    `may_call`: whether it may be called at this very moment; asked before each request, so that a call of several ends
    where the lease does.
    """

    def __init__(
        self,
        name: str,
        url: str,
        *,
        restart: Sequence[str] = (),
        limits: VllmLimits | None = None,
        may_call: Callable[[], bool] = lambda: True,
    ) -> None:
        self._name = name
        self._url = url
        self._restart = tuple(restart)
        self._limits = limits or VllmLimits()
        self._calls = HttpCalls(name, url, may_call)
        # While its workers receive or finish, vLLM answers nothing but its health.
        self._busy = False

    @property
    def name(self) -> str:
        """How configuration, log and results call it."""
        return self._name

    @property
    def url(self) -> str:
        """Where it is."""
        return self._url

    async def close(self) -> None:
        """Lets go of connections; may be repeated."""
        await self._calls.close()

    async def status(self) -> EngineStatus:
        """How it is; see `Engine`."""
        try:
            async with asyncio.timeout(STATUS_LIMIT_S):
                await self._calls.get("/health", STATUS_LIMIT_S)
                if self._busy:
                    return EngineStatus(healthy=True, paused=True, update_open=True)
                return await self._status()
        except EngineError as error:
            return EngineStatus(healthy=False, detail=str(error))
        except TimeoutError:
            what = f"engine {self._name}: status: no answer within {STATUS_LIMIT_S:g} s, but it lives"
            return EngineStatus(healthy=False, detail=what)

    async def abort_requests(self) -> int:
        """Gives up what is in flight."""
        if await self._paused():
            raise EngineRefusedError(self._name, "abort_requests", "it is paused: abort before the pause")
        answer = await self._calls.post("/abort_requests", self._limits.control_s)
        return parsed(self._name, "abort_requests", answer.get("aborted", 0), int)

    async def compare(self, transfer: Transfer) -> None:
        """Compares what is announced with the model; see `Engine`."""
        await self._refuse_if_open("compare")
        await self._announce("compare", transfer)

    async def pause(self) -> None:
        """Freezes what is in flight. Its default would abort it."""
        if await self._paused():
            what = "it is paused or asleep already, by somebody else's hand: restart it"
            raise EngineRefusedError(self._name, "pause", what)
        await self._calls.post("/pause?mode=keep&clear_cache=false", self._limits.control_s)

    async def resume(self) -> None:
        """Goes on, unless an update is open: a generation then would end the engine."""
        await self._refuse_if_open("resume")
        await self._calls.post("/resume", self._limits.control_s)

    async def begin_update(self, transfer: Transfer) -> None:
        """Compares what is announced with the model, then opens the update."""
        if not await self._paused():
            raise EngineRefusedError(self._name, "begin_update", "it is not paused")
        await self._refuse_if_open("begin_update")
        await self._announce("begin_update", transfer)
        try:
            await self._calls.post_once("/start_weight_update", self._limits.control_s)
        except EngineError as error:
            raise UpdateFailedError(self._name, "begin_update", str(error)) from error

    async def receive(self, transfer: Transfer) -> str:
        """Loads the weights while they are sent; see `Engine`."""
        body = {"update_info": {"sync_id": transfer.sync_id}}
        self._busy = True
        try:
            await self._calls.post_once("/update_weights", transfer.deadline_s + GRACE_S, body)
            return await self._agreed_checksum()
        except EngineError as error:
            raise UpdateFailedError(self._name, "receive", str(error)) from error
        finally:
            self._busy = False

    async def finish_update(self, label: str) -> None:
        """Makes the new weights the engine's own and labels them."""
        self._busy = True
        try:
            await self._calls.post_once("/finish_weight_update", self._limits.control_s, {"weight_version": label})
        except EngineError as error:
            raise UpdateFailedError(self._name, "finish_update", str(error)) from error
        finally:
            self._busy = False

    async def reset_prefix_cache(self) -> None:
        """Forgets what the old weights computed, of frozen requests too: they compute their prefix anew."""
        for _ in range(RESET_ATTEMPTS):
            path = "/reset_prefix_cache?reset_running_requests=true"
            answer = await self._calls.post(path, self._limits.control_s)
            if answer.get("success") is True:
                return
            await asyncio.sleep(RESET_PAUSE_S)
        raise EngineRefusedError(self._name, "reset_prefix_cache", "blocks are still held: restart it")

    async def restart(self) -> None:
        """Runs the restart command and waits until a fresh process is healthy."""
        self._calls.require_leave("restart")
        await run_restart(self._name, self._restart, self._is_fresh, self._limits.restart_s)

    async def tokenize(self, prompt: str | Sequence[Mapping[str, str]]) -> tuple[int, ...]:
        """Token ids of a text, or of chat messages up to the assistant's turn."""
        body = {"prompt": prompt} if isinstance(prompt, str) else {"messages": [dict(each) for each in prompt]}
        tokens = await self._field("POST", "/tokenize", "tokens", body)
        return parsed(self._name, "tokenize", tokens, lambda tokens: tuple(int(token) for token in tokens))

    async def generate(self, token_ids: Sequence[int], sampling: SamplingParams) -> tuple[Completion, ...]:
        """Samples of one prompt; see `Engine`."""
        body = generate_request(token_ids, sampling)
        answer = await self._calls.post_once("/inference/v1/generate", self._limits.generate_s, body)
        return parse_completions(self._name, answer)

    async def _status(self) -> EngineStatus:
        models = await self._field("GET", "/v1/models", "data")
        model = parsed(self._name, "GET /v1/models", models, lambda models: str(models[0]["id"]))
        size = await self._field("GET", "/get_world_size", "world_size")
        workers = parsed(self._name, "GET /get_world_size", size, int)
        return EngineStatus(
            healthy=True,
            paused=await self._paused(),
            update_open=any(report.open for report in await self._reports()),
            label=parse_label(str(await self._field("GET", "/weight_info", "weight_version"))),
            workers=workers,
            model=model,
        )

    async def _paused(self) -> bool:
        # Also true of an engine that is only paused; to call an engine asleep is what ends it.
        return bool(await self._field("GET", "/is_sleeping", "is_sleeping"))

    async def _is_fresh(self) -> bool:
        status = await self.status()
        return status.healthy and status.label is None and not status.update_open

    async def _refuse_if_open(self, call: str) -> None:
        if any(report.open for report in await self._reports()):
            raise EngineRefusedError(self._name, call, "its update did not finish: restart it")

    async def _announce(self, call: str, transfer: Transfer) -> None:
        body = {"init_info": init_request(transfer)}
        await self._calls.post_once("/init_weight_transfer_engine", self._limits.control_s, body)
        for report in await self._reports():
            if report.problem:
                raise WeightsMismatchError(self._name, call, report.problem)
            if report.sync_id != transfer.sync_id:
                raise EngineRefusedError(self._name, call, f"it takes part in sync {report.sync_id}")

    async def _agreed_checksum(self) -> str:
        reports = await self._reports()
        for report in reports:
            if report.problem:
                raise EngineRefusedError(self._name, "receive", report.problem)
        checksums = {report.checksum for report in reports}
        if len(checksums) != 1:
            raise EngineRefusedError(self._name, "receive", f"its workers hold different weights: {checksums}")
        checksum = checksums.pop()
        # Reports come from the first data-parallel replica; this asks the workers of all.
        await self._collective("confirm_checksum", checksum)
        return checksum

    async def _reports(self) -> list[TransferReport]:
        return parse_reports(self._name, await self._collective("transfer_report"))

    async def _collective(self, method: str, *arguments: str) -> Mapping[str, Any]:
        body = {"method": method, "args": list(arguments)}
        return await self._calls.post("/collective_rpc", self._limits.control_s, body)

    async def _field(self, method: str, path: str, field: str, body: Mapping[str, Any] | None = None) -> Any:  # noqa: ANN401
        if method == "GET":
            answer = await self._calls.get(path, self._limits.control_s)
        else:
            answer = await self._calls.post(path, self._limits.control_s, body)
        if field not in answer:
            raise unreadable(self._name, f"{method} {path}", answer)
        return answer[field]
