"""One engine behind the chat-completions API, for programs that speak nothing else: on loopback, for one answer.

What such a program says becomes tokens and goes through `Engine.generate`, so that it is known which weights made
which token. Chat only: tools and streams are refused.
"""

import asyncio
import json
from dataclasses import dataclass, field
from http import HTTPStatus
from types import TracebackType
from typing import Any, Self

from orchestrator.engines.interface import Completion, Engine, SamplingParams
from orchestrator.errors import EngineError

MOST_BODY_BYTES = 2**26


@dataclass(slots=True, kw_only=True)
class ChatBridge:
    """`async with` it and post to `url`. `said`: every completion, in order. `fault`: what an engine failed with."""

    engine: Engine
    sampling: SamplingParams
    said: list[Completion] = field(default_factory=list)
    fault: EngineError | None = None
    _server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        """Base of the API."""
        if self._server is None:
            raise RuntimeError("the bridge is not open")
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            status, answer = await self._answer(await _read_body(reader))
            data = json.dumps(answer).encode()
            head = f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: application/json\r\n"
            writer.write(f"{head}content-length: {len(data)}\r\nconnection: close\r\n\r\n".encode() + data)
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass  # the caller has gone
        finally:
            writer.close()

    async def _answer(self, body: dict[str, Any]) -> tuple[HTTPStatus, dict[str, Any]]:
        if body.get("tools") or body.get("stream"):
            return HTTPStatus.BAD_REQUEST, _fault("only plain chat is served here: no tools, no streams")
        messages = [{"role": each["role"], "content": _text_of(each.get("content"))} for each in body["messages"]]
        try:
            prompt = await self.engine.tokenize(messages)
            [said] = await self.engine.generate(prompt, self.sampling)
        except EngineError as error:
            self.fault = error
            return HTTPStatus.SERVICE_UNAVAILABLE, _fault(str(error))
        self.said.append(said)
        message = {"role": "assistant", "content": said.text}
        usage = {"prompt_tokens": len(prompt), "completion_tokens": len(said.token_ids)}
        return HTTPStatus.OK, {
            "id": f"answer-{len(self.said)}",
            "object": "chat.completion",
            "created": 0,
            "model": body.get("model", ""),
            "choices": [{"index": 0, "message": message, "finish_reason": said.finish_reason}],
            "usage": usage | {"total_tokens": sum(usage.values())},
        }


async def _read_body(reader: asyncio.StreamReader) -> dict[str, Any]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    lengths = [line.partition(":")[2] for line in head.splitlines() if line.startswith("content-length:")]
    length = int(lengths[0]) if lengths else 0
    if length > MOST_BODY_BYTES:
        raise ConnectionError(f"a request of {length} bytes")
    body: dict[str, Any] = json.loads(await reader.readexactly(length))
    return body


def _text_of(content: object) -> str:
    """Contents of a message: a text, or parts of which texts count."""
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return "" if content is None else str(content)


def _fault(message: str) -> dict[str, Any]:
    return {"error": {"message": message}}
