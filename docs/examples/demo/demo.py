"""The whole system on one machine, with crashes, and the proof that nothing was lost or seen twice.

    store <- paragraphs of Python's manual
    server ── trainer, 2 ranks: one is killed ── trainer, 1 rank: the server is killed meanwhile ── end of the epoch
    loss, cursor, proof

    python docs/examples/demo/demo.py [FOLDER]      `make demo`

Everything lies in FOLDER (demo/ unless given), which each run makes anew. The last line is `demo: ok ...`, or the cause
of the failure with exit code 1.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

from corpus import VOCABULARY, build_store
from folder import Folder, empty_folder
from picture import draw_loss, sparkline
from processes import DemoError, Process, free_port, is_listening
from proof import Lives, Proof, prove
from settings import MAX_LENGTH, RUN, write_settings

from dataserver.client import DataClient
from dataserver.errors import DataServerError

HERE = Path(__file__).resolve().parent
BIN = Path(sys.executable).parent

KILL_RANK_AT = 13
KILL_SERVER_AT = 24

START_S = 120
TRAIN_S = 600

# The loss is compared as its mean over so many steps at each end of the epoch, because single steps jump about. It
# must fall by this part at least. It falls by a quarter.
ENDS = 5
LEAST_FALL = 0.15

BEGIN = time.monotonic()


def say(text: str) -> None:
    """A line of the story, with the time."""
    print(f"demo: {time.monotonic() - BEGIN:4.0f} s  {text}", flush=True)


class Demo:
    """The story, in the order in which it is told."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self.endpoint = f"127.0.0.1:{free_port()}"
        server_config, self.trainer_config = write_settings(folder, self.endpoint, VOCABULARY)
        command = [str(BIN / "dataserver"), "serve", str(server_config)]
        self.server = Process("server", command, folder.root / "server.log")

    def tell(self) -> str:
        """All of it; returns its last line."""
        say(f"everything is made in {self.folder.root}, logs too")
        rows = build_store(self.folder.store, self.folder.root / "tokenizer.json")
        say(f"built a store of {rows} conversations out of Python's manual, and a tokenizer of {VOCABULARY} tokens")
        try:
            self.start_server()
            self.first_life()
            self.second_life()
            with DataClient(self.endpoint, patience_s=START_S) as client:
                lives = self.lives(client)
                first, last = self.show_loss(lives)
                self.show_cursor()
                proof = self.show_proof(client, lives)
        finally:
            self.server.stop()
        return (
            f"demo: ok {proof.samples} samples once each in {lives.last} steps, over a killed rank, 2 -> 1 ranks and a "
            f"killed server; loss {first:.2f} -> {last:.2f} (means of the first and last {ENDS} steps); "
            f"{time.monotonic() - BEGIN:.0f} s"
        )

    def start_server(self) -> None:
        """Start it and wait until it listens."""
        self.server.start()
        self.server.wait_until("it listened", lambda: is_listening(self.endpoint), START_S)
        say(f"the server listens on {self.endpoint}")

    def first_life(self) -> None:
        """Two ranks, until one of them is killed."""
        say("training on two ranks (the first step takes a while: torch is imported)")
        with self.trainer(ranks=2) as trainer:
            self.watch(trainer, KILL_RANK_AT)
            pid = trainer.kill_last_child()
            code = trainer.wait(START_S)
            if code == 0:
                raise DemoError("torchrun ended well although a rank was killed")
            say(f"killed rank 1 (SIGKILL, pid {pid}); torchrun ended the job with code {code}, as it should")

    def second_life(self) -> None:
        """One rank, to the end of the epoch; the server dies on the way."""
        with DataClient(self.endpoint, patience_s=START_S) as client:
            saved = client.get_run(RUN).committed.step
        say(f"resuming on one rank from the newest checkpoint: what came after step {saved} is trained on again")
        with self.trainer(ranks=1) as trainer:
            self.watch(trainer, KILL_SERVER_AT)
            self.server.kill()
            say("killed the server (SIGKILL); the trainer waits for it")
            self.start_server()
            self.watch(trainer)
            code = trainer.wait(START_S)
            if code != 0:
                raise DemoError(f"the trainer ended with code {code}{trainer.tail()}")

    def trainer(self, ranks: int) -> Process:
        """A torchrun of that many ranks."""
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
        command += [str(HERE / "recording_rank.py"), str(self.trainer_config), self.endpoint, str(self.folder.records)]
        return Process(f"trainer on {ranks} rank(s)", command, self.folder.root / f"trainer-on-{ranks}.log")

    def watch(self, trainer: Process, until: int | None = None) -> None:
        """Show how the trainer gets on until it has done the step `until`, or ended."""
        shown = len(self.folder.figures())

        def reached() -> bool:
            nonlocal shown
            news = self.folder.figures()[shown:]
            shown += len(news)
            for figure in news:
                if figure["step"] % 4 == 0:
                    say(f"    step {figure['step']:2}  loss {figure['loss']:.3f}  wait {figure['data_wait_s']:.3f} s")
            return trainer.has_ended if until is None else any(figure["step"] >= until for figure in news)

        trainer.wait_until("its end" if until is None else f"step {until}", reached, START_S + TRAIN_S)

    def lives(self, client: DataClient) -> Lives:
        """What the ledger says of the two attempts, now that the epoch should be over."""
        run = client.get_run(RUN)
        if run.attempt is None or (run.committed.epoch, run.committed.position) != (1, 0):
            raise DemoError(f"the run should stand at the end of its epoch, but stands at {run.committed}")
        if run.attempt.number != 2 or not 0 < run.attempt.base.step < KILL_RANK_AT:
            raise DemoError(f"attempt 2 should have begun within attempt 1, but {run.attempt} stands there")
        return Lives(base=run.attempt.base.step, last=run.committed.step)

    def show_loss(self, lives: Lives) -> tuple[float, float]:
        """Draw the loss; return its mean over the first and the last `ENDS` steps that survived."""
        points = [(int(f["attempt"]), int(f["step"]), f["loss"]) for f in self.folder.figures()]
        attempts = [[(step, loss) for attempt, step, loss in points if attempt == number] for number in (1, 2)]
        notes = {
            lives.base: "attempt 2 begins here, on one rank",
            KILL_RANK_AT: "rank 1 killed",
            KILL_SERVER_AT: "server killed",
        }
        draw_loss(self.folder.picture, attempts, notes)
        survived = [loss for attempt, step, loss in points if lives.attempt_of(step) == attempt]
        if len(survived) != lives.last:
            raise DemoError(f"the trainer wrote figures of {len(survived)} surviving steps, not of {lives.last}")
        first, last = sum(survived[:ENDS]) / ENDS, sum(survived[-ENDS:]) / ENDS
        say(f"loss {survived[0]:.2f} {sparkline(survived)} {survived[-1]:.2f}  (picture: {self.folder.picture})")
        if last > first * (1 - LEAST_FALL):
            raise DemoError(f"the loss went from {first:.2f} to {last:.2f}: that is no learning")
        return first, last

    def show_cursor(self) -> None:
        """Ask for the cursor as a person would."""
        request, method = json.dumps({"run": RUN}), "dataserver.v1.CursorService/GetCursor"
        say(f"grpcurl -plaintext -d '{request}' {self.endpoint} {method}")
        command = [str(BIN / "grpcurl"), "-plaintext", "-d", request, self.endpoint, method]
        answer = subprocess.run(command, capture_output=True, text=True)
        if answer.returncode != 0:
            raise DemoError(f"grpcurl failed: {answer.stderr.strip()}")
        print(answer.stdout.rstrip())

    def show_proof(self, client: DataClient, lives: Lives) -> Proof:
        """Say what is compared, and how it came out."""
        proof = prove(client, RUN, lives, store=self.folder.store, records=self.folder.records, max_length=MAX_LENGTH)
        say(
            f"surviving steps: 1 to {lives.base} of attempt 1 (2 ranks), {lives.base + 1} to {lives.last} of 2 (1 rank)"
        )
        say(f"the store's files hold {proof.samples} samples to serve ({proof.dropped} rows have no target)")
        say("the server's account of the surviving steps holds each of them once: yes")
        say("the token ids that the ranks trained on in them are each of them once: yes")
        say(f"thrown away with attempt 1: {proof.lost_with_attempt} samples, all of them trained on again")
        return proof


def main() -> int:
    """Entry point."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE.parents[2] / "demo"
    try:
        with empty_folder(root.resolve()) as folder:
            last_line = Demo(folder).tell()
    except (DemoError, DataServerError) as error:
        print(f"demo: failed: {error}", flush=True)
        return 1
    print(last_line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
