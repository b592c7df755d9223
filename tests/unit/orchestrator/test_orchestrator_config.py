"""An orchestrator's configuration: what is refused before anything starts, and with which way out."""

from pathlib import Path

import pytest

from dataserver.errors import InvalidConfigError
from orchestrator.config_file import load_config
from orchestrator.engines.interface import Transport

ENGINE = '[[engines]]\nname = "one"\nurl = "http://127.0.0.1:8000"\n'
EVAL = '[[evals]]\nname = "reverse"\ninterval = 5\nprompts = { file = "r.jsonl" }\nsampling = { max_tokens = 8 }\n'
RUN = '[run]\nname = "chat"\n'


def load(tmp_path: Path, text: str, *overrides: str):
    path = tmp_path / "orchestrator.toml"
    path.write_text(text)
    return load_config(path, overrides)


def test_a_file_with_a_run_an_engine_and_an_eval_is_enough(tmp_path: Path) -> None:
    config = load(tmp_path, RUN + ENGINE + EVAL, "weights.transport=gloo", "pool.lease_s=3")
    assert (config.run.name, config.engines[0].url) == ("chat", "http://127.0.0.1:8000")
    assert (config.weights.transport, config.pool.lease_s) == (Transport.GLOO, 3)
    assert config.serve.listen.startswith("127.0.0.1:")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (RUN + "[run.order]\nseed = 1\n", "leave it in the trainer's configuration"),
        (RUN + EVAL, "evals without an engine: reverse; add"),
        (RUN + ENGINE + EVAL.replace("interval = 5", "interval = 0"), "evals.0.interval"),
        (RUN + ENGINE + ENGINE, "engines of the same name: one; change or remove"),
        (RUN + ENGINE + ENGINE.replace('"one"', '"two"'), "engines of the same url: http://127.0.0.1:8000"),
        (RUN + ENGINE + EVAL + EVAL, "evals of the same name: reverse"),
        (RUN + ENGINE.replace("http://", ""), "give http://HOST:PORT"),
        (RUN + '[serve]\nlisten = "0.0.0.0:50061"\ninsecure = true\n', "set serve.advertise"),
        (RUN + '[serve]\nlisten = "10.0.0.1:50061"\n', "set tls and token_file"),
        (RUN + '[weights]\ntransport = "pigeon"\n', "'filesystem', 'gloo' or 'nccl'"),
    ],
)
def test_what_cannot_work_is_refused_with_the_way_out(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(InvalidConfigError) as refused:
        load(tmp_path, text)
    assert told in str(refused.value)
    assert "orchestrator.toml" in str(refused.value)
