"""`dataserver plan cost`: what it prints, and how it refuses."""

import json

import pytest

from dataserver.cli.main import main

CONFIG = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "vocab_size": 32,
}


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG))
    return path


def test_the_coefficients_are_those_of_a_batch_spec(model, capsys):
    assert main(["plan", "cost", "--model", str(model)]) == 0
    assert capsys.readouterr().out == "cost_linear = 17408\ncost_quadratic = 64\n"


def test_a_directory_stands_for_its_configuration(model, capsys):
    assert main(["plan", "cost", "--model", str(model.parent), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"cost_linear": 17_408, "cost_quadratic": 64}


@pytest.mark.parametrize(
    ("text", "message"),
    [(None, "cannot read"), ("{", "is not JSON"), ("[]", "no JSON object"), ("{}", "hidden_size = None")],
)
def test_what_is_no_configuration_is_refused_in_one_line(model, capsys, text, message):
    if text is None:
        model.unlink()
    else:
        model.write_text(text)
    assert main(["plan", "cost", "--model", str(model)]) == 1
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
