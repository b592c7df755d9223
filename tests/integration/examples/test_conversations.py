"""The examples of conversations render as they are, and the configurations that need a network are read."""

import json
import re
import runpy
import sys
import tomllib
from pathlib import Path

import pytest

from dataserver.config import load_config
from dataserver.render.hub import is_data_set
from dataserver.render.part import render_part
from dataserver.render.rows import chunks_of, find_input
from dataserver.render.tokenizer import load_tokenizer, open_renderer
from dataserver.render_options import RenderOptions
from dataserver.run_spec import OrderSpec

sys.path.insert(0, str(Path(__file__).parents[2] / "unit" / "render"))

from renderlab.tokenizers import CHATML, build_tokenizer
from renderlab.words import words

from dataserver.render.conversation import conversation_of

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples" / "conversations"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Path:
    return build_tokenizer(tmp_path_factory.mktemp("tokenizer") / "chatml", CHATML)


def written(name: str, path: Path, rows: int) -> Path:
    runpy.run_path(str(EXAMPLES / name))["main"](path, rows)
    return path


def test_tool_calls_and_answers_are_targets_and_what_tools_say_if_asked(tokenizer, tmp_path):
    path = written("tool_calls.py", tmp_path / "calls.jsonl", 20)
    options = RenderOptions(tokenizer=tokenizer, family="template", roles=("assistant", "tool"))
    renderer, loaded = open_renderer(options), load_tokenizer(tokenizer)
    for line in path.read_text().splitlines():
        row = json.loads(line)
        said = words(loaded, renderer.render(conversation_of(row)))
        turns = [message for message in row["messages"] if message["role"] != "user"]
        assert len(said) == len(turns)
        for run, message in zip(said, turns, strict=True):
            assert message["content"] in run
            assert run.count("<call>") == len(message.get("tool_calls", []))
            assert ("null" in run) == bool(message.get("tool_calls")), "a null argument is a value"


def test_long_documents_keep_their_answer_or_are_counted(tokenizer, tmp_path):
    path = written("long_documents.py", tmp_path / "documents.jsonl", 12)
    found = find_input(path)
    options = RenderOptions(tokenizer=tokenizer, family="template", max_length=20_000)
    reports = [
        render_part(found, chunk, renderer=open_renderer(options), options=options, directory=tmp_path)
        for chunk in chunks_of(found)
    ]
    assert sum(report.rows for report in reports) == 12
    kept, cut = (
        sum(counts)
        for counts in ((r.samples for r in reports), (r.dropped["target_cut_off"] for r in reports if r.dropped))
    )
    assert kept + cut == 12
    assert kept > 0 < cut


@pytest.mark.parametrize("name", ["intellect-3-sft.toml", "tulu-3.toml"])
def test_a_configuration_that_needs_a_network_is_read_and_so_is_its_run(name):
    config = load_config(EXAMPLES / name, {}, {})
    assert all(is_data_set(str(store.path)) and store.render is not None for store in config.stores.values())
    commented = (EXAMPLES / name).read_text().split("[run.order]")[1].split("[stores")[0]
    order = tomllib.loads(re.sub(r"(?m)^# ?", "", commented))
    spec = OrderSpec.model_validate(order)
    assert [source.store for source in spec.sources] == list(config.stores)
    assert {store.render.max_length for store in config.stores.values() if store.render} == {spec.max_length}
