"""How a process of the job asks the launcher to start another one afresh: a line each way over a socket.

The socket has an abstract name (Linux), so that no file is left behind, and answers only processes of the same user.
"""

import asyncio
import os
import socket
import struct
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

from deploy.launcher.job import JobError

SOCKET_VARIABLE = "LAUNCHER_SOCKET"
"""Environment variable by which the job's processes find their launcher."""

Restart = Callable[[str], Awaitable[str]]


class Control:
    """The launcher's end; listens within the block."""

    def __init__(self, name: str, restart: Restart) -> None:
        self._name = name
        self._restart = restart
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_unix_server(self._answer, path=f"\0{self._name}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if _user_of(writer.get_extra_info("socket")) == os.getuid():
                name = (await reader.readline()).decode(errors="replace").strip()
                writer.write((await self._restart(name) + "\n").encode())
                await writer.drain()
        finally:
            writer.close()


def _user_of(connection: socket.socket) -> int:
    """User id of whoever is at the other end."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    user: int = struct.unpack("3i", credentials)[1]
    return user


def ask_to_restart(launcher: str, name: str) -> None:
    """Ask the launcher of that socket name to start a process afresh; returns when it has started.

    Raises `JobError` when there is no such launcher or process.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(f"\0{launcher}")
            connection.sendall(f"{name}\n".encode())
            with connection.makefile() as answers:
                answer = answers.readline()
        except OSError as error:
            raise JobError(f"the launcher does not answer: {error.strerror}") from error
    if not answer:
        raise JobError("the launcher ended before it answered")
    if fault := answer.strip():
        raise JobError(fault)
