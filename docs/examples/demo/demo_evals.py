"""A policy that learns, evaluated while it does: server, trainer, vLLM and orchestrator as one job on this machine.

    words of Python's manual, to be said backwards
    trainer, 2 ranks ──weights, when an eval will use them──> vLLM ──answers on words kept back──> rewards, which rise

    python docs/examples/demo/demo_evals.py VLLM_PYTHON [FOLDER]      `make demo-evals`

VLLM_PYTHON is the Python of an environment with vLLM (`make vllm`). Everything lies in FOLDER (demo-evals/ unless
given), which each run makes anew. The last line is `demo-evals: ok ...`, or the cause of the failure with exit code 1.
"""

import sys
import time
from contextlib import closing
from pathlib import Path

from evals_settings import EVERY, RANKS, RUN, STEPS, write_job
from folder import Folder, empty_folder
from picture import draw_rewards, sparkline
from processes import DemoError, Process, free_port
from words import write_model, write_words

from dataserver.errors import DataServerError
from orchestrator.results import EvalResult, EvalState, open_results

HERE = Path(__file__).resolve().parent

JOB_S = 1500
"""A few minutes on idle cores, most of them for vLLM to start; a quarter of an hour where others use them too."""

FIRST_AT_MOST = 0.3
LAST_AT_LEAST = 0.6
"""Mean overlap at the first and the last eval. Guesses have a twentieth of the letters right."""

BEGIN = time.monotonic()


def say(text: str) -> None:
    """A line of the story, with the time."""
    print(f"demo-evals: {time.monotonic() - BEGIN:4.0f} s  {text}", flush=True)


def tell(folder: Folder, vllm_python: Path) -> str:
    """The whole story; its last line."""
    if not vllm_python.exists():
        raise DemoError(f"there is no vLLM at {vllm_python}: `make vllm` installs it")
    root = folder.root
    learn = write_words(folder.store, root / "held-out.jsonl")
    write_model(root / "model")
    job_file = write_job(root, data_port=free_port(), engine_port=free_port(), vllm_python=vllm_python)
    say(f"{learn} words to learn from; the job is {job_file}, its output {root / 'job.log'}")
    job = Process("the job", [sys.executable, "-m", "deploy.launcher", str(job_file)], root / "job.log")
    try:
        job.start()
        say(f"data server, {RANKS} ranks, orchestrator and vLLM start (vLLM takes the longest, half a minute and more)")
        watch(job, root / "results.db")
        if code := job.wait(JOB_S):
            raise DemoError(f"the job ended with code {code}{job.tail()}")
    finally:
        job.stop()
    return conclude(folder)


def watch(job: Process, database: Path) -> None:
    """Show results as they come, until the job has ended."""
    shown = 0

    def has_ended() -> bool:
        nonlocal shown
        results = results_in(database)
        for result in results[shown:]:
            tokens = " + ".join(f"{part.tokens} tokens of version {part.version}" for part in result.version_tokens)
            say(f"    version {result.version.number:3}  {result.name:8} {mean_of(result):.2f}  ({tokens})")
        shown = len(results)
        return job.process.poll() is not None

    job.wait_until("end", has_ended, JOB_S)


def results_in(database: Path) -> list[EvalResult]:
    """What the orchestrator has written so far."""
    if not database.exists():
        return []
    with closing(open_results(f"sqlite:///{database}")) as table:
        return table.find(run=RUN)


def mean_of(result: EvalResult) -> float:
    """Mean reward; an eval that was given up has none."""
    if result.state is not EvalState.DONE:
        raise DemoError(f"eval {result.eval_id} was given up: {result.detail}")
    return result.figures["mean"]


def conclude(folder: Folder) -> str:
    """Draw the curves and check them; the last line."""
    curves: dict[str, list[tuple[int, float]]] = {}
    for result in results_in(folder.root / "results.db"):
        curves.setdefault(result.name, []).append((result.version.number, mean_of(result)))
    for points in curves.values():
        points.sort()
    picture = folder.root / "reward.png"
    draw_rewards(picture, curves, "Words said backwards: rewards on words that were never trained on")
    for name, points in curves.items():
        means = [mean for _, mean in points]
        say(f"{name:8} {means[0]:.2f} {sparkline(means)} {means[-1]:.2f}  (picture: {picture})")
    first, last = curves["overlap"][0], curves["overlap"][-1]
    if last[0] != STEPS:
        raise DemoError(f"the last eval was of version {last[0]}, not of the last version {STEPS}")
    if first[1] > FIRST_AT_MOST or last[1] < LAST_AT_LEAST:
        raise DemoError(f"the overlap went from {first[1]:.2f} to {last[1]:.2f}: that is no learning")
    gains = ", ".join(f"{name} {points[0][1]:.2f} -> {points[-1][1]:.2f}" for name, points in curves.items())
    syncs = [figure for figure in folder.figures() if figure.get("sync_outcome") == "landed"]
    stall_s = sum(sync["sync_stall_s"] for sync in syncs) / max(len(syncs), 1)
    return (
        f"demo-evals: ok {STEPS} steps, evals every {EVERY}: {gains}; weights moved {len(syncs)} times, "
        f"steps stood still for {stall_s:.2f} s each; {time.monotonic() - BEGIN:.0f} s"
    )


def main() -> int:
    """Entry point."""
    if len(sys.argv) not in {2, 3}:
        print("usage: demo_evals.py VLLM_PYTHON [FOLDER]", file=sys.stderr)
        return 2
    root = Path(sys.argv[2]) if len(sys.argv) > 2 else HERE.parents[2] / "demo-evals"
    try:
        with empty_folder(root.resolve()) as folder:
            last_line = tell(folder, Path(sys.argv[1]).absolute())
    except (DemoError, DataServerError) as error:
        print(f"demo-evals: failed: {error}", flush=True)
        return 1
    print(last_line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
