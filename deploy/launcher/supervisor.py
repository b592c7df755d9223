"""Carries the rule out: starts the job's processes, starts them again, and ends all of them."""

import asyncio
import secrets
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from deploy.launcher.control import SOCKET_VARIABLE, Control
from deploy.launcher.job import JobConfig
from deploy.launcher.process import Process, Say
from deploy.launcher.rule import End, Kind, Limits, Verdict, judge


class Supervisor:
    """One job, from its start to its exit code."""

    def __init__(self, job: JobConfig, *, directory: Path, environment: Mapping[str, str], say: Say) -> None:
        self._job = job
        self._directory = directory
        self._socket = f"launcher-{secrets.token_hex(16)}"
        self._environment = {**environment, SOCKET_VARIABLE: self._socket}
        self._words = {name: process.words(self._environment) for name, process in job.processes.items()}
        self._say = say
        self._limits = Limits(restarts=job.restarts, backoff_s=job.backoff_s, steady_s=job.steady_s)
        self._running: dict[str, Process] = {}
        self._asked: set[str] = set()
        self._woken: dict[str, asyncio.Event] = {}
        self._restarted = asyncio.Condition()
        self._over: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._finished = asyncio.Event()

    async def run(self) -> int:
        """Run the job; its exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._interrupt, number)
        async with Control(self._socket, self.restart):
            tasks = {name: loop.create_task(self._keep(name)) for name in self._words}
            tasks["end"] = loop.create_task(self._finish(tasks.get("orchestrator")))
            for task in tasks.values():
                task.add_done_callback(self._check)
            try:
                code = await self._over
            finally:
                for task in tasks.values():
                    task.cancel()
                await asyncio.gather(*tasks.values(), return_exceptions=True)
                await self._stop_all()
        self._say("launcher", f"the job ended with code {code}")
        return code

    async def restart(self, name: str) -> str:
        """Kill a process and start it afresh, uncounted; what was wrong, or nothing."""
        if name not in self._words or name == "trainer":
            return f"{name!r} is none of {', '.join(sorted(set(self._words) - {'trainer'}))}"
        process = self._running.get(name)
        if process is not None:
            self._say("launcher", f"{name} is to start afresh; killing it")
            self._asked.add(name)
            process.kill()
        elif name in self._woken:
            self._woken[name].set()
        else:
            return f"{name} has ended and stays down"
        async with self._restarted:
            await self._restarted.wait_for(lambda: self._running.get(name) not in {None, process})
        return ""

    async def _keep(self, name: str) -> None:
        """Keep one process running for as long as the rule says."""
        crashes = 0
        while True:
            process = await self._start(name)
            code = await process.wait()
            del self._running[name]
            if name in self._asked:
                self._asked.discard(name)
                continue
            end = End(name=name, code=code, lived_s=process.lived_s, crashes_before=crashes)
            verdict = judge(end, self._limits)
            self._announce(end, verdict)
            crashes = verdict.crashes
            if verdict.kind is not Kind.RESTART:
                break
            await self._back_off(name, verdict.wait_s)
        if verdict.kind is Kind.FAIL:
            self._end(code)
        elif verdict.kind is Kind.FINISH:
            self._finished.set()

    async def _start(self, name: str) -> Process:
        environment = {**self._environment, **self._job.processes[name].environment}
        process = await Process.start(
            name, self._words[name], directory=self._directory, environment=environment, say=self._say
        )
        self._running[name] = process
        async with self._restarted:
            self._restarted.notify_all()
        return process

    async def _back_off(self, name: str, wait_s: float) -> None:
        """Wait, or until somebody asks for the process."""
        self._woken[name] = asyncio.Event()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._woken[name].wait(), wait_s)
        del self._woken[name]

    async def _finish(self, orchestrator: "asyncio.Task[None] | None") -> None:
        """Once the trainer has ended well and the orchestrator has ended, the job is over."""
        await self._finished.wait()
        if orchestrator is not None and not orchestrator.done():
            self._say("launcher", f"waiting up to {self._job.drain_s:g} s for the orchestrator to end")
            await asyncio.wait({orchestrator}, timeout=self._job.drain_s)
            if not orchestrator.done():
                self._say("launcher", f"the orchestrator has not ended within {self._job.drain_s:g} s; ending it")
        self._end(0)

    async def _stop_all(self) -> None:
        # The trainer and the orchestrator before those they talk to; the latter at once, for there may be many.
        for name in ("trainer", "orchestrator"):
            if name in self._running:
                await self._running[name].stop(self._job.stop_s)
        rest = [process for name, process in self._running.items() if name not in {"trainer", "orchestrator"}]
        await asyncio.gather(*(process.stop(self._job.stop_s) for process in rest))

    def _announce(self, end: End, verdict: Verdict) -> None:
        what = f"{end.name} ended with code {end.code} after {end.lived_s:.0f} s"
        consequence = {
            Kind.LEAVE: "",
            Kind.FINISH: "",
            Kind.FAIL: ": the job ends",
            Kind.RESTART: f"; starting it again in {verdict.wait_s:g} s (crash {verdict.crashes} in a row, "
            f"at most {self._limits.restarts})",
            Kind.GIVE_UP: f": crash {verdict.crashes} in a row; it stays down, and the job goes on without it",
        }[verdict.kind]
        self._say("launcher", what + consequence)

    def _interrupt(self, number: int) -> None:
        """The first signal ends all in order, another one at once."""
        if self._over.done():
            for process in self._running.values():
                process.kill()
        self._say("launcher", f"received {signal.Signals(number).name}; ending all")
        self._end(128 + number)

    def _end(self, code: int) -> None:
        if not self._over.done():
            self._over.set_result(code)

    def _check(self, task: "asyncio.Task[None]") -> None:
        """A fault of the launcher's own must not leave it waiting."""
        if not task.cancelled() and task.exception() is not None and not self._over.done():
            self._over.set_exception(task.exception() or RuntimeError("unknown"))
