"""A scorer of somebody's own that never returns costs its eval, and nothing else."""

import threading
from pathlib import Path

import pytest
from evallab.run import a_run, eval_config, version, write_prompts

from orchestrator.results import EvalState
from orchestrator.wants import Wants

# More than there are threads in a pool of asyncio's, on any machine.
PROMPTS = 40


@pytest.fixture
def stuck(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A function that scores nothing until the test is over."""
    over = threading.Event()
    (tmp_path / "stuck_rewards.py").write_text("over = None\n\ndef score(text, line):\n    over.wait()\n    return 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    import stuck_rewards  # type: ignore[import-not-found]

    stuck_rewards.over = over
    yield {"kind": "python", "entry_point": "stuck_rewards:score"}
    over.set()


async def test_an_eval_whose_scorer_never_returns_is_given_up_and_written(tmp_path, stuck):
    prompts = write_prompts(tmp_path / "prompts.jsonl", PROMPTS)
    with a_run(tmp_path, [eval_config(prompts, scorer=stuck, drain_timeout_s=0.2)]) as run:
        run.look()
        await run.until(lambda: run.wanted != Wants())
        run.land(version(0))
        await run.until(lambda: bool(run.director.book.finished))
        [result] = run.results.of_run(run.uid)
        assert result.state is EvalState.FAILED
        assert "no answer came for drain_timeout_s" in result.detail
        await run.director.close()
