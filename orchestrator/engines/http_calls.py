"""Calls of an engine over HTTP: each within a deadline, its answer bounded, its faults `EngineError`s."""

import asyncio
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import httpx

from orchestrator.errors import EngineRefusedError, EngineUnavailableError

# Answers of control calls are a line; a completion takes some 60 bytes a token with its logprobs.
ANSWER_LIMIT_BYTES = 64 << 20
CONNECT_LIMIT_S = 5.0
# A call that may be repeated, is, when no answer came: a connection may have been closed while it was idle.
ATTEMPTS = 3
PAUSE_S = 0.1
# How much of a fault's text an error quotes.
QUOTE_CHARS = 2000


class HttpCalls:
    """The HTTP side of the engine `name` at `url`. `may_call` is asked before each call goes out."""

    def __init__(self, name: str, url: str, may_call: Callable[[], bool]) -> None:
        self._name = name
        self._may_call = may_call
        self._url = url.rstrip("/")
        # Proxies and .netrc of the environment are for the outside world; engines are on the inside.
        self._client = httpx.AsyncClient(
            base_url=self._url,
            timeout=httpx.Timeout(None, connect=CONNECT_LIMIT_S),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=32),
            trust_env=False,
        )

    async def close(self) -> None:
        """Closes the connections; may be repeated."""
        await self._client.aclose()

    def require_leave(self, call: str) -> None:
        """Raise `EngineUnavailableError` unless the engine may be called now."""
        if not self._may_call():
            raise EngineUnavailableError(self._name, call, "not called: the orchestrator's lease is over")

    async def get(self, path: str, limit_s: float) -> Mapping[str, Any]:
        """Asks; repeated when no answer came."""
        return await self._repeat("GET", path, None, limit_s)

    async def post(self, path: str, limit_s: float, body: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        """Calls what may be called twice; repeated when no answer came."""
        return await self._repeat("POST", path, body, limit_s)

    async def post_once(self, path: str, limit_s: float, body: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        """Calls what must not be called twice.

        Raises `EngineUnavailableError` when no whole answer came in time or the engine failed (HTTP 5xx),
        `EngineRefusedError` when the call itself is at fault (4xx).
        """
        return await self._call("POST", path, body, limit_s)

    async def _repeat(
        self, method: str, path: str, body: Mapping[str, Any] | None, limit_s: float
    ) -> Mapping[str, Any]:
        for attempt in range(1, ATTEMPTS):
            try:
                return await self._call(method, path, body, limit_s)
            except EngineUnavailableError as error:
                if isinstance(error.__cause__, TimeoutError):
                    raise
                await asyncio.sleep(attempt * PAUSE_S)
        return await self._call(method, path, body, limit_s)

    async def _call(self, method: str, path: str, body: Mapping[str, Any] | None, limit_s: float) -> Mapping[str, Any]:
        call = f"{method} {self._url}{path}"
        self.require_leave(call)
        try:
            async with (
                asyncio.timeout(limit_s),
                self._client.stream(method, path, json=body if body is not None else {}) as response,
            ):
                answer = bytearray()
                async for chunk in response.aiter_bytes():
                    answer += chunk
                    if len(answer) > ANSWER_LIMIT_BYTES:
                        raise EngineRefusedError(
                            self._name, call, f"its answer is larger than {ANSWER_LIMIT_BYTES} bytes; ask for less"
                        )
        except TimeoutError as error:
            raise EngineUnavailableError(self._name, call, f"no answer within {limit_s:g} s") from error
        except httpx.HTTPError as error:
            raise EngineUnavailableError(self._name, call, f"no answer: {type(error).__name__} {error}") from error
        return self._read(call, response.status_code, bytes(answer))

    def _read(self, call: str, status: int, answer: bytes) -> Mapping[str, Any]:
        if status >= 500:
            raise EngineUnavailableError(self._name, call, f"HTTP {status}: {_quote(answer)}")
        if not 200 <= status < 300:
            raise EngineRefusedError(self._name, call, f"HTTP {status}: {_quote(answer)}")
        if not answer:
            return {}
        try:
            value = json.loads(answer)
        except ValueError as error:
            raise EngineRefusedError(self._name, call, f"answers with no JSON: {_quote(answer)}") from error
        if not isinstance(value, dict):
            raise EngineRefusedError(self._name, call, f"answers with no JSON object: {_quote(answer)}")
        return value


def _quote(answer: bytes) -> str:
    """The message of a fault, or the start of whatever came."""
    text = answer.decode(errors="replace")
    with suppress(ValueError, KeyError, TypeError):
        text = str(json.loads(text)["error"]["message"])
    return text[:QUOTE_CHARS]
