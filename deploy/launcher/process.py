"""One process of the job: a warden that holds it, and its output as lines with its name."""

import asyncio
import codecs
import re
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

WARDEN = Path(__file__).with_name("warden.py")

READ_BYTES = 1 << 16
LONGEST_LINE = 1 << 16
"""Characters. What has no line end for so long is cut here, so that memory stays bounded."""

ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
"""Terminal escapes: control sequences (colours, the cursor), titles, single functions."""
LINE_ENDS = re.compile(r"\r\n|\n|\r")

PLAIN = {"NO_COLOR": "1", "TERM": "dumb", "PYTHONUNBUFFERED": "1"}
"""Asks programs for lines without colour, as they come."""

Say = Callable[[str, str], None]


class Process:
    """A process that runs. Make one with `start`."""

    def __init__(self, name: str, warden: asyncio.subprocess.Process, say: Say) -> None:
        self.name = name
        self._warden = warden
        self._say = say
        self._started = time.monotonic()
        self._output = asyncio.create_task(self._pass_on())

    @classmethod
    async def start(
        cls, name: str, words: list[str], *, directory: Path, environment: Mapping[str, str], say: Say
    ) -> "Process":
        """Start a command in `directory`; `say(name, line)` gets its output."""
        warden = await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            str(WARDEN),
            *words,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
            cwd=directory,
            env={**environment, **PLAIN},
        )
        return cls(name, warden, say)

    @property
    def lived_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._started

    async def wait(self) -> int:
        """Its exit code, once it and all that it started are gone and their output is passed on."""
        await asyncio.shield(self._output)
        return await self._warden.wait()

    def terminate(self) -> None:
        """Ask it to end."""
        with suppress(ProcessLookupError):
            self._warden.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it and all that it started."""
        if self._warden.stdin is not None:
            self._warden.stdin.close()

    async def stop(self, timeout_s: float) -> None:
        """Ask it to end; kill it after `timeout_s`. Returns when it is gone."""
        self.terminate()
        try:
            await asyncio.wait_for(asyncio.shield(self._output), timeout_s)
        except TimeoutError:
            self._say("launcher", f"{self.name} did not end within {timeout_s:g} s; killing it")
            self.kill()
        await self.wait()

    async def _pass_on(self) -> None:
        """Output, line by line, without escapes."""
        output = self._warden.stdout
        if output is None:
            return
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        text = ""
        while chunk := await output.read(READ_BYTES):
            *lines, text = LINE_ENDS.split(text + decoder.decode(chunk))
            if len(text) > LONGEST_LINE:
                lines.append(text)
                text = ""
            self._print(lines)
        self._print([text])

    def _print(self, lines: list[str]) -> None:
        for line in lines:
            if plain := ESCAPES.sub("", line).rstrip():
                self._say(self.name, plain)
