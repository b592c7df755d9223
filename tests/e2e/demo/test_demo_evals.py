"""The demo of evals on a real vLLM: its reward rises, and kills of the engine or the orchestrator cost nothing."""

import os
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

REPOSITORY = Path(__file__).parents[3]
DEMO = REPOSITORY / "docs" / "examples" / "demo" / "demo_evals.py"
LIMIT_S = 1200

# A run that is over before vLLM is back: then the end of the run is put off for it.
STEPS = 40


@pytest.fixture
def vllm_python() -> Path:
    """The Python of the environment with vLLM; skips the test where there is none."""
    found = Path(os.environ.get("DATASERVER_VLLM_PYTHON", REPOSITORY / ".venv-vllm" / "bin" / "python"))
    if not found.exists():
        pytest.skip(f"no vLLM at {found}: `make vllm` installs it")
    return found


def test_a_word_is_learnt_letter_by_letter_and_words_that_are_asked_for_are_never_trained_on() -> None:
    import words

    learn, ask = words.words()
    assert (len(set(learn) & set(ask)), len(ask)) == (0, words.HELD_OUT)
    sample = words.row("river")
    answer = [token for token, target in zip(sample["input_ids"], sample["loss_mask"], strict=True) if target]
    assert "".join(words.VOCABULARY[token] for token in answer) == f"revir{words.END}"
    prompt = {"reference": "revir"}
    assert [words.overlap(text, prompt) for text in ("revir", "rev", "revirr", "xevix", "")] == [1, 0.6, 5 / 6, 0.6, 0]


def test_the_demos_configurations_are_valid(tmp_path: Path) -> None:
    import tomllib

    from evals_settings import write_job

    from dataserver.config import ServerConfig
    from deploy.launcher.job import load_job
    from orchestrator.config import OrchestratorConfig
    from trainer.config import TrainerConfig

    job = load_job(write_job(tmp_path, data_port=1, engine_port=2, vllm_python=Path("python")))
    assert list(job.processes) == ["server", "engine-0", "trainer", "orchestrator"]
    assert [process.words({}) for process in job.processes.values()]
    models = {"server": ServerConfig, "train": TrainerConfig, "orchestrator": OrchestratorConfig}
    server, trainer, orchestrator = (
        model.model_validate(tomllib.loads((tmp_path / f"{name}.toml").read_text())) for name, model in models.items()
    )
    assert server.stores.keys() == {source.store for source in trainer.run.order.sources}
    assert (trainer.run.name, trainer.weights.transport) == (orchestrator.run.name, orchestrator.weights.transport)


@pytest.mark.vllm
@pytest.mark.soak
@pytest.mark.timeout(2 * LIMIT_S)
def test_the_reward_of_what_is_evaluated_on_vllm_rises_while_it_is_trained(tmp_path: Path, vllm_python: Path) -> None:
    command = [sys.executable, DEMO, vllm_python, tmp_path / "demo-evals"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    assert re.match(r"demo-evals: ok \d+ steps, evals every \d+: \w+ 0\.\d\d -> ", result.stdout.splitlines()[-1])
    assert (tmp_path / "demo-evals" / "reward.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.vllm
@pytest.mark.slow
@pytest.mark.timeout(2 * LIMIT_S)
@pytest.mark.parametrize("victim", ["vllm.entrypoints", "orchestrator"])
def test_a_real_engine_or_its_orchestrator_may_be_killed(
    tmp_path: Path, vllm_python: Path, monkeypatch: pytest.MonkeyPatch, victim: str
) -> None:
    import evals_settings
    from demo_evals import results_in
    from processes import Process, free_port
    from words import write_model, write_words

    from orchestrator.results import EvalState

    monkeypatch.setattr(evals_settings, "STEPS", STEPS)
    write_words(tmp_path / "store", tmp_path / "held-out.jsonl")
    write_model(tmp_path / "model")
    path = evals_settings.write_job(tmp_path, data_port=free_port(), engine_port=free_port(), vllm_python=vllm_python)
    job = Process("the job", [sys.executable, "-m", "deploy.launcher", str(path)], tmp_path / "job.log")
    try:
        job.start()
        job.wait_until("the first result", lambda: bool(results_in(tmp_path / "results.db")), LIMIT_S)
        module_of(job.process.pid, victim).kill()
        assert job.wait(LIMIT_S) == 0, job.tail()
    finally:
        job.stop()
    last = [each for each in results_in(tmp_path / "results.db") if each.version.number == STEPS]
    assert {each.name: each.state for each in last} == {"overlap": EvalState.DONE, "exact": EvalState.DONE}
    assert all(each.version_tokens and None not in {p.version for p in each.version_tokens} for each in last)
    # It crashed; or the orchestrator saw that first, and asked for its restart.
    assert re.search(
        r"^launcher +\| \S+ (ended with code 137|is to start afresh)", (tmp_path / "job.log").read_text(), re.M
    )


def module_of(pid: int, module: str) -> psutil.Process:
    """The job's process that runs such a module and was started first."""
    found = []
    for each in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.Error):  # others come and go
            words = each.cmdline()
            if words[1:2] == ["-m"] and words[2].startswith(module):
                found.append(each)
    return min(found, key=psutil.Process.create_time)
