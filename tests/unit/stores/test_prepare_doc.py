"""What docs/prepare-a-store.md shows writes stores that are admitted, with the rows that were given."""

import importlib.util
import re
from pathlib import Path

import pytest

from dataserver.stores import open_store

DOCUMENT = Path(__file__).parents[3] / "docs" / "prepare-a-store.md"
SECTIONS = dict(
    re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
)
ROWS = DOCUMENT.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]

# Section -> the library that it takes, and the stores that it writes.
WRITTEN = {
    "pyarrow": ("pyarrow", ["chats.arrow", "chats.parquet"]),
    "polars": ("polars", ["polars.arrow", "polars.parquet"]),
    "Hugging Face datasets": ("datasets", ["saved"]),
    "JSON Lines": ("json", ["chats.jsonl"]),
    "DuckDB": ("duckdb", ["duckdb.parquet"]),
}


def run(section: str) -> dict[str, object]:
    names: dict[str, object] = {}
    for block in [ROWS, *re.findall(r"```python\n(.*?)```", SECTIONS[section], re.DOTALL)]:
        exec(block, names)  # noqa: S102  # the document's own code
    return names


@pytest.mark.parametrize("section", WRITTEN)
def test_each_section_writes_the_rows_that_it_was_given(section, tmp_path, monkeypatch):
    library, paths = WRITTEN[section]
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    monkeypatch.chdir(tmp_path)
    if section == "DuckDB":
        run("JSON Lines")
    rows = run(section)["rows"]
    for path in paths:
        store = open_store(tmp_path / path, index_dir=tmp_path / "index")
        found = [{"input_ids": row.input_ids.tolist(), "loss_mask": row.loss_mask.tolist()} for row in store]
        assert found == rows, path
        if path.endswith("arrow"):
            assert store.shards[0].layout is not None, f"{path} is served from the map"


def test_a_mask_is_derived_from_labels(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run("polars")
    (row,) = open_store(tmp_path / "labelled.parquet", index_dir=tmp_path / "index")
    assert (row.input_ids.tolist(), row.loss_mask.tolist()) == ([101, 2748, 102], [0, 1, 1])


def test_only_spark_is_shown_and_not_run():
    shown = {name for name, text in SECTIONS.items() if re.search(r"```(python|scala)", text)}
    assert shown - set(WRITTEN) == {"Spark"}
    assert "not executed" in SECTIONS["Spark"]
