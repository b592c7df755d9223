"""Looks at a server as a person would, with grpcurl alone, and writes down the calls and what they answer.

A server with a small store runs in this process; a run of two ranks takes some steps of it and commits checkpoints;
then every call below is made by reflection. Writes docs/grpcurl.md, and the calls that are marked into README.md.

    python docs/examples/grpcurl_tour.py
"""

import json
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from dataserver.client import DataClient
from dataserver.run_spec import BatchSpec, OrderSpec, RunSpec, Source
from dataserver.testing import running_server, write_store
from dataserver.weight_sync import PolicyVersion, SyncOutcome, WeightSync

ROOT = Path(__file__).resolve().parents[2]
GRPCURL = Path(sys.executable).with_name("grpcurl")
BEGIN, END = "<!-- grpcurl: written by docs/examples/grpcurl_tour.py -->", "<!-- /grpcurl -->"

# What readers have; the server of the tour listens on a port of its own.
ADDRESS = "localhost:50051"
LONGEST_ANSWER = 80
LONGEST_IN_README = 45

RUN, STORE, RANKS, STEPS = "chat-sft", "chat", 2, 3
LENGTHS = [12, 7, 30, 18, 25, 9, 14, 21, 16, 11, 28, 8, 19, 13, 22, 10]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call: what a person wants to know, the method, and the request."""

    question: str
    method: str
    request: dict[str, object] | None = None
    in_readme: bool = False

    def command(self) -> str:
        """As one would type it."""
        data = "" if self.request is None else f"-d '{json.dumps(self.request)}' "
        return f"grpcurl -plaintext {data}{ADDRESS} {self.method}"


CALLS = (
    Call(question="What does this server offer?", method="list", in_readme=True),
    Call(question="What is a cursor?", method="describe dataserver.v1.Cursor"),
    Call(question="Is it serving?", method="grpc.health.v1.Health/Check"),
    Call(question="Which stores does it own?", method="dataserver.v1.StoreService/ListStores"),
    Call(
        question="What is lost of a store at a given length, and why?",
        method="dataserver.v1.StoreService/GetStore",
        request={"store": STORE, "max_length": 16},
    ),
    Call(
        question="What is in its rows?",
        method="dataserver.v1.StoreService/ListSamples",
        request={"store": STORE, "begin_row": 0, "end_row": 2},
    ),
    Call(question="Which runs are there?", method="dataserver.v1.RunService/ListRuns"),
    Call(
        question="How far is a run?",
        method="dataserver.v1.RunService/GetRun",
        request={"run": RUN},
    ),
    Call(
        question="What happened to it?",
        method="dataserver.v1.RunService/ListRunEvents",
        request={"run": RUN},
    ),
    Call(
        question="Where does its newest checkpoint stand?",
        method="dataserver.v1.CursorService/GetCursor",
        request={"run": RUN},
        in_readme=True,
    ),
    Call(
        question="And all its checkpoints?",
        method="dataserver.v1.CursorService/ListCursors",
        request={"run": RUN},
    ),
    Call(
        question="Which weights does somebody want, and which have engines got?",
        method="dataserver.v1.WeightSyncService/GetWeightSyncState",
        request={"run": RUN},
    ),
    Call(
        question="Ask for the weights of a version.",
        method="dataserver.v1.WeightSyncService/RequestWeightSync",
        request={"run": RUN, "version": STEPS},
    ),
    Call(
        question="Which samples were in step 2 on rank 1?",
        method="dataserver.v1.CursorService/DescribeStep",
        request={"run": RUN, "step": 2, "dp_rank": 1},
        in_readme=True,
    ),
    Call(
        question="Which would be, on the last of four ranks?",
        method="dataserver.v1.CursorService/DescribeStep",
        request={"run": RUN, "step": 2, "dp_world_size": 4, "dp_rank": 3},
    ),
)


def consume(client: DataClient) -> None:
    """Take some steps on two ranks, commit checkpoints on the way, and hand the last weights over."""
    spec = RunSpec(
        order=OrderSpec(sources=(Source(store=STORE),), max_length=32),
        batch=BatchSpec(step_samples=4, micro_batch_tokens=48, max_steps=STEPS),
    )
    client.create_run(RUN, spec)
    client.lease_orchestrator(RUN, "evals-1", "node2:50052", 600.0)
    client.request_sync(RUN, None)
    attempt = client.begin_attempt(RUN, resume=False, world_size=RANKS, dp_world_size=RANKS, holder="tour")
    streams = [client.stream(RUN, attempt, world_rank=rank, dp_rank=rank, next_step=1) for rank in range(RANKS)]
    for steps in zip(*streams, strict=True):
        for stream, step in zip(streams, steps, strict=True):
            for _ in step:
                pass
            stream.ack(step)
        client.commit_cursor(RUN, attempt, steps[0].end, f"file:///checkpoints/step-{steps[0].number}")
    version = PolicyVersion(attempt=attempt.number, number=STEPS)
    client.report_sync(
        RUN,
        WeightSync(
            sync_id="5f" * 16,
            version=version,
            outcome=SyncOutcome.LANDED,
            seconds=2.5,
            stall_seconds=0.75,
            engines=("node3:8000",),
        ),
    )
    for stream in streams:
        stream.close()


def answer(call: Call, endpoint: str) -> str:
    """What the server says; raises when the call fails."""
    data = [] if call.request is None else ["-d", json.dumps(call.request)]
    command = [str(GRPCURL), "-plaintext", *data, endpoint, *call.method.split()]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.rstrip()


def section(call: Call, text: str, longest: int) -> str:
    """The call and its answer, as Markdown; an answer of more than `longest` lines is cut."""
    lines = text.splitlines()
    if len(lines) > longest:
        lines = [*lines[:longest], f"... {len(lines) - longest} more lines"]
    return "\n".join([f"{call.question}", "", "```console", f"$ {call.command()}", *lines, "```", ""])


def main() -> None:
    """Entry point."""
    with tempfile.TemporaryDirectory() as scratch:
        store = Path(scratch) / STORE
        write_store(store, lengths=LENGTHS)
        with running_server({STORE: store}) as server:
            with DataClient(server.endpoint) as client:
                consume(client)
            answers = [(call, answer(call, server.endpoint)) for call in CALLS]
    page = [
        "# A server, asked by grpcurl",
        "",
        "Written by `docs/examples/grpcurl_tour.py` from a server that ran.",
        "",
        *(section(call, text, LONGEST_ANSWER) for call, text in answers),
    ]
    (ROOT / "docs" / "grpcurl.md").write_text("\n".join(page))
    chosen = "\n".join(section(call, text, LONGEST_IN_README) for call, text in answers if call.in_readme)
    readme = ROOT / "README.md"
    block = f"{BEGIN}\n{chosen}{END}"
    readme.write_text(re.sub(f"{BEGIN}.*?{END}", lambda _: block, readme.read_text(), flags=re.DOTALL))


if __name__ == "__main__":
    main()
