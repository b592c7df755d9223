"""The configurations of published sets, whole, on small ones of the same subsets, splits and columns."""

import re
import sys
import tomllib
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dataserver.cli.plan_estimate import render_text_sources
from dataserver.config import ServerConfig, parse_config
from dataserver.planning.plan import Plan
from dataserver.render.tokenizer import load_tokenizer
from dataserver.run_spec import BatchSpec, OrderSpec
from dataserver.stores import Store
from dataserver.streaming.catalog import open_catalog
from dataserver.streaming.contexts import build_context

sys.path.insert(0, str(Path(__file__).parents[2] / "unit" / "render"))

from renderlab.tokenizers import build_tokenizer
from renderlab.vocabularies import template_of
from renderlab.words import words

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples" / "conversations"

# Turns as the template of Tulu 3 writes them: the last one closed by the end-of-text token alone.
TULU = """\
{%- for message in messages %}
{{- '<|' + message.role + '|>\\n' + message.content }}
{%- if message.role == 'assistant' %}{{ eos_token }}{% endif %}
{%- if message.role != 'assistant' or not loop.last %}{{ '\\n' }}{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}"""

TOOL = '{"name": "search", "description": "Finds.", "parameters": {"type": "object", "properties": {}}}'


def said(role: str, content: str, **more: object) -> dict[str, object]:
    return {"role": role, "content": content, **more}


def thought(subject: str, n: int) -> dict[str, object]:
    return {
        "prompt": [said("user", f"{subject} question {n}")],
        "completion": [said("assistant", f"<think>\nthought {n}\n</think>\n\n{subject} answer {n}")],
    }


def with_a_call(n: int) -> dict[str, object]:
    call = {"id": f"call-{n}", "type": "function", "function": {"name": "search", "arguments": f'{{"n": {n}}}'}}
    return {
        "prompt": [said("system", "You search."), said("user", f"find {n}")],
        "completion": [
            said("assistant", "", tool_calls=[call]),
            said("tool", f"found {n}", tool_call_id=f"call-{n}"),
            said("assistant", f"It is {n}."),
        ],
        "tools": f"[{TOOL}]",
    }


def write_set(directory: Path, subsets: dict[str, list[dict[str, object]]]) -> None:
    """A data set as hubs keep them: Parquet files, and a card that says which subset they are."""
    lines = ["---", "configs:"]
    for subset, rows in subsets.items():
        (directory / subset).mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(rows), directory / subset / "train-00000-of-00001.parquet")
        lines += [f"- config_name: {subset}", "  data_files:", f"  - {{split: train, path: {subset}/train-*}}"]
    (directory / "README.md").write_text("\n".join([*lines, "---", ""]))


def config_of(name: str, directory: Path) -> tuple[ServerConfig, OrderSpec]:
    """The example's server and run, its data sets and tokenizers in `directory`."""
    text = (EXAMPLES / name).read_text()
    commented = text.split("[run.order]")[1].split("[stores")[0]
    order = OrderSpec.model_validate(tomllib.loads(re.sub(r"(?m)^# ?", "", commented)))
    text = re.sub(r"datasets://[^/]+/", f"datasets://{directory}/", text)
    settings = tomllib.loads(text)
    for store in settings["stores"].values():
        store["render"]["tokenizer"] = str(directory / store["render"]["tokenizer"])
    return parse_config({**settings, "index_dir": str(directory / "index"), "disk_cache_bytes": 0}), order


@pytest.fixture
def directory(tmp_path, monkeypatch) -> Path:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    return tmp_path


def targets(store: Store, tokenizer: Path) -> list[list[str]]:
    loaded = load_tokenizer(tokenizer)
    return [words(loaded, row) for row in store]


def served(config: ServerConfig, order: OrderSpec, tokenizer: Path) -> dict[str, list[list[str]]]:
    """What rows of each store train, once a step of the run is planned."""
    catalog = open_catalog(config)
    try:
        render_text_sources(catalog, config)
        context = build_context(order, catalog)
        batch = BatchSpec(step_samples=4, micro_batch_tokens=order.max_length)
        context.check_batch(batch, 2**28)
        assert isinstance(context.plan(context.planner.initial_cursor(), batch, 2), Plan)
        return {name: targets(catalog.get(name), tokenizer) for name in catalog.names}
    finally:
        catalog.close()


def test_subsets_of_intellect_3_sft_are_mixed_with_thoughts_and_calls(directory):
    subsets = {
        "openreasoning_math": [thought("math", n) for n in range(6)],
        "openreasoning_code": [thought("code", n) for n in range(5)],
        "openreasoning_science": [thought("science", n) for n in range(4)],
        "toucan_tool": [with_a_call(n) for n in range(3)],
    }
    write_set(directory / "INTELLECT-3-SFT", subsets)
    tokenizer = build_tokenizer(directory / "Qwen3-4B", template_of("qwen3"))
    config, order = config_of("intellect-3-sft.toml", directory)
    trained = served(config, order, tokenizer)
    assert trained["math"] == [[f"<think>\nthought {n}\n</think>\n\nmath answer {n}<|im_end|>"] for n in range(6)]
    assert trained["code"] == [[f"<think>\nthought {n}\n</think>\n\ncode answer {n}<|im_end|>"] for n in range(5)]
    calls = [f'<tool_call>\n{{"name": "search", "arguments": {{"n": {n}}}}}\n</tool_call><|im_end|>' for n in range(3)]
    answers = [f"<think>\n\n</think>\n\nIt is {n}.<|im_end|>" for n in range(3)]
    assert trained["tools"] == [list(turns) for turns in zip(calls, answers, strict=True)]


def test_tulu_3_is_one_store_by_its_own_template(directory):
    rows = [
        {
            "id": f"row-{n}",
            "messages": [said("user", f"ask {n}"), said("assistant", f"say {n}")] * (1 + n % 3),
            "source": "a set",
        }
        for n in range(9)
    ]
    rows[4]["messages"] = [said("narrator", "unheard of")]
    write_set(directory / "tulu-3-sft-mixture", {"default": rows})
    special = ("<|system|>", "<|user|>", "<|assistant|>", "<|end_of_text|>")
    tokenizer = build_tokenizer(directory / "Llama-3.1-Tulu-3-8B", TULU, eos="<|end_of_text|>", special=special)
    config, order = config_of("tulu-3.toml", directory)
    trained = served(config, order, tokenizer)["tulu"]
    assert trained == [[f"say {n}<|end_of_text|>"] * (1 + n % 3) for n in range(9) if n != 4]
