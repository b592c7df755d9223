"""The examples of conversations: sets that are made on the spot are rendered whole, and configurations are right."""

import runpy
import tomllib
from pathlib import Path

import pytest
from test_store_render import render_here

from dataserver.config import load_config
from dataserver.render.hub import is_data_set, names_of
from dataserver.run_spec import OrderSpec
from dataserver.stores import open_store

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples" / "conversations"


def made(name: str, path: Path, rows: int) -> Path:
    runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"](path, rows)
    return path


@pytest.fixture(scope="module")
def decode(chatml):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(chatml).decode


def targets(store: Path, index_dir: Path, decode) -> list[list[str]]:
    """The runs of targets of each row."""
    found = []
    with open_store(store, index_dir=index_dir) as opened:
        for row in opened:
            ids, mask = row.input_ids.tolist(), row.loss_mask.tolist()
            edges = [at for at in range(len(ids) + 1) if (at < len(ids) and mask[at]) != (at > 0 and mask[at - 1])]
            found.append([decode(ids[begin:end]) for begin, end in zip(edges[::2], edges[1::2], strict=True)])
    return found


def test_text_that_is_reversed_is_the_one_target(chatml, tmp_path, decode):
    source = made("reverse_text", tmp_path / "reversed.jsonl", 40)
    report = render_here(source, tmp_path / "store", tokenizer=chatml)
    assert (report.rows, report.samples, report.rejected) == (40, 40, 0)
    for runs in targets(tmp_path / "store", tmp_path / "index", decode):
        assert len(runs) == 1
        assert runs[0].startswith("<reversed_text>")
        assert runs[0].endswith("</reversed_text><|im_end|>")


def test_calls_and_what_tools_answer_are_targets_of_their_own(chatml, tmp_path, decode):
    source = made("tool_calls", tmp_path / "calls.jsonl", 40)
    report = render_here(source, tmp_path / "store", tokenizer=chatml, roles=("assistant", "tool"))
    assert (report.rows, report.samples, report.rejected) == (40, 40, 0)
    rows = targets(tmp_path / "store", tmp_path / "index", decode)
    calls = [run for runs in rows for run in runs if run.startswith("<call>")]
    assert all('"unit": null' in run and run.endswith("</call><|im_end|>") for run in calls)
    assert any(run.count("<call>") == 2 for run in calls), "two at once"
    assert sum(run.startswith('{"sum": ') for runs in rows for run in runs) == sum(run.count("<call>") for run in calls)


def test_long_documents_are_context_and_one_line_of_them_the_target(chatml, tmp_path, decode):
    source = made("long_documents", tmp_path / "documents.jsonl", 8)
    report = render_here(source, tmp_path / "store", tokenizer=chatml, max_length=131_072)
    assert (report.rows, report.samples, report.cut_tokens) == (8, 8, 0)
    assert report.tokens > 8 * 2000
    assert all(len(runs) == 1 for runs in targets(tmp_path / "store", tmp_path / "index", decode))


@pytest.mark.parametrize(("name", "stores", "length"), [("intellect-3-sft", 3, 131_072), ("tulu-3", 1, 4096)])
def test_configurations_of_published_sets_need_nothing_but_a_network(name, stores, length):
    path = EXAMPLES / f"{name}.toml"
    config = load_config(path, {}, {})
    assert len(config.stores) == stores
    for store in config.stores.values():
        assert is_data_set(str(store.path))
        assert names_of(str(store.path))[2] == "train"
        assert store.render.max_length == length
    lines = [line.removeprefix("#     ") for line in path.read_text().splitlines() if line.startswith("#     ")]
    run = tomllib.loads("\n".join(lines[1:]))["run"]
    order = OrderSpec.model_validate(run["order"])
    assert order.max_length == length
    assert {source.store for source in order.sources} == set(config.stores)
