"""vLLM's HTTP as far as the orchestrator speaks it, over a fake engine."""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from itertools import accumulate
from typing import Any

from orchestrator.engines.wire import TransferReport, parse_transfer
from orchestrator.testing.fake_engine import FakeEngine, FakeSample, RefusedError
from orchestrator.testing.fake_tokens import Reply, decode, encode, render, token_at
from orchestrator.testing.faults import Call, Fault

Body = Mapping[str, Any]
Query = Mapping[str, list[str]]
Route = Callable[[Body, Query], Mapping[str, Any]]

MODEL = "fake"


class Routes:
    """What each path does. `reply`: what it says, instead of letters that follow from its weights."""

    def __init__(self, engine: FakeEngine, reply: Reply | None) -> None:
        self._engine = engine
        self._reply = reply
        self._routes: dict[str, tuple[Call | None, Route]] = {
            "GET /health": ("health", lambda _body, _query: {}),
            "GET /is_sleeping": ("status", lambda _body, _query: {"is_sleeping": engine.paused}),
            "GET /weight_info": ("status", lambda _body, _query: {"weight_version": engine.label}),
            "GET /get_world_size": ("status", lambda _body, _query: {"world_size": engine.workers}),
            "GET /v1/models": ("status", lambda _body, _query: {"data": [{"id": MODEL}]}),
            "POST /pause": ("pause", self._pause),
            "POST /resume": ("resume", _plain(engine.resume)),
            "POST /sleep": (None, self._sleep),
            "POST /wake_up": (None, _plain(engine.wake_up)),
            "POST /abort_requests": ("abort", lambda _body, _query: {"aborted": engine.abort()}),
            "POST /init_weight_transfer_engine": ("announce", self._announce),
            "POST /start_weight_update": ("start", _plain(engine.start)),
            "POST /update_weights": ("update", _plain(engine.update)),
            "POST /finish_weight_update": ("finish", self._finish),
            "POST /reset_prefix_cache": ("reset", self._reset),
            "POST /collective_rpc": ("status", self._collective),
            "POST /tokenize": ("tokenize", self._tokenize),
            "POST /inference/v1/generate": ("generate", self._generate),
            "POST /fake/fault": (None, self._fault),
            "GET /fake/events": (None, lambda _body, _query: {"events": engine.events()}),
        }

    def answer(self, route: str, query: Query, body: Body) -> Mapping[str, Any]:
        """Carries a call out; raises KeyError for an unknown route, and what the engine raises."""
        call, function = self._routes[route]
        if call is None:
            return function(body, query)
        self._engine.faults.meet(call)
        answer = function(body, query)
        self._engine.faults.meet(call, after=True)
        return answer

    def _pause(self, _body: Body, query: Query) -> Mapping[str, Any]:
        if query.get("mode") == ["keep"]:
            self._engine.pause()
        else:
            self._engine.abort()
            self._engine.pause()
        return {"status": "paused"}

    def _sleep(self, _body: Body, query: Query) -> Mapping[str, Any]:
        self._engine.sleep(int(query.get("level", ["1"])[0]))
        return {}

    def _announce(self, body: Body, _query: Query) -> Mapping[str, Any]:
        self._engine.announce(parse_transfer(body["init_info"]["transfer"]))
        return {}

    def _finish(self, body: Body, _query: Query) -> Mapping[str, Any]:
        self._engine.finish(body["weight_version"])
        return {}

    def _reset(self, _body: Body, query: Query) -> Mapping[str, Any]:
        # Blocks of requests in flight are held, unless those are made to begin anew.
        if self._engine.in_flight and query.get("reset_running_requests") != ["true"]:
            return {"success": False}
        self._engine.reset_prefix_cache()
        return {"success": True}

    def _collective(self, body: Body, _query: Query) -> Mapping[str, Any]:
        transfer = self._engine.transfer
        if body["method"] == "confirm_checksum":
            if body["args"] != [transfer.checksum]:
                raise RefusedError(f"its weights have the checksum {transfer.checksum}")
            return {"results": [None] * self._engine.workers}
        sync_id = "" if transfer.announced is None else transfer.announced.sync_id
        report = TransferReport(
            sync_id=sync_id, open=transfer.open, problem=transfer.problem, checksum=transfer.checksum
        )
        return {"results": [asdict(report)] * self._engine.workers}

    def _tokenize(self, body: Body, _query: Query) -> Mapping[str, Any]:
        text = body["prompt"] if "prompt" in body else render(body["messages"])
        return {"tokens": encode(text)}

    def _generate(self, body: Body, _query: Query) -> Mapping[str, Any]:
        prompt, params = body["token_ids"], body["sampling_params"]
        indices = range(params.get("n", 1))
        with ThreadPoolExecutor(len(indices)) as threads:
            samples = list(threads.map(lambda index: self._sample(prompt, index, params["max_tokens"]), indices))
        return {"choices": [_choice(i, each, params) for i, each in enumerate(samples)]}

    def _sample(self, prompt: list[int], index: int, limit: int) -> FakeSample:
        def speak(checksum: str, label: str, place: int) -> int | None:
            if self._reply is None:
                return token_at(checksum, prompt, index, place)
            text = self._reply(decode(prompt), label)
            return ord(text[place]) if place < len(text) else None

        return self._engine.generate(prompt, speak, limit)

    def _fault(self, body: Body, _query: Query) -> Mapping[str, Any]:
        self._engine.fault(Fault(**body))
        return {}


def _plain(function: Callable[[], None]) -> Route:
    def route(_body: Body, _query: Query) -> Mapping[str, Any]:
        function()
        return {}

    return route


def _choice(index: int, sample: FakeSample, params: Mapping[str, Any]) -> dict[str, Any]:
    ends = list(accumulate(tokens for _, tokens in sample.spans))
    reason = "length" if len(sample.tokens) == params["max_tokens"] else "stop"
    logprobs = {"content": [{"logprob": -1.0} for _ in sample.tokens]} if "logprobs" in params else None
    return {
        "index": index,
        "text": decode(sample.tokens),
        "token_ids": sample.tokens,
        "finish_reason": "abort" if sample.aborted else reason,
        "logprobs": logprobs,
        "weight_versions": [
            {"version": label, "start": end - tokens, "end": end}
            for (label, tokens), end in zip(sample.spans, ends, strict=True)
        ],
    }
