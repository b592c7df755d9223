"""What the log says of a store that was admitted."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dataserver.server.admission import AdmissionReport
from dataserver.stores import BlockCache, open_store
from dataserver.testing import write_store


@pytest.fixture
def said(tmp_path: Path):
    """The lines that are said of the store at a path."""

    def admit(path: Path, cache_bytes: int = 2**30) -> list[str]:
        lines: list[str] = []
        store = open_store(path, index_dir=tmp_path / "index", cache=BlockCache(cache_bytes))
        AdmissionReport(lines.append).admitted("chat", store)
        return lines

    return admit


def test_a_plain_store_takes_one_line(tmp_path: Path, said) -> None:
    (line,) = said(write_store(tmp_path / "chat", lengths=[5, 6]))
    assert line.startswith("store chat: 2 rows, 11 tokens, longest 6, highest token ")


def test_drops_ignored_files_and_links_out_of_the_store_are_said(tmp_path: Path, said) -> None:
    path = write_store(tmp_path / "chat", rows=[([1, 2], [0, 1]), ([], []), ([1, 2], [1, 0])])
    (path / "README.md").write_text("chats")
    outside = write_store(tmp_path / "blobs", lengths=[4]) / "data-00000-of-00001.arrow"
    (path / "more.arrow").symlink_to(outside)
    assert said(path)[1:] == [
        "store chat: never served, whatever max_length is: 1 empty, 1 no_target",
        "store chat: passed over README.md: readme",
        f"store chat: more.arrow is a link out of the store, to {outside}, whose rows are served",
    ]


def test_a_store_that_serves_nothing_is_reported_and_no_error(tmp_path: Path, said) -> None:
    assert said(write_store(tmp_path / "chat", rows=[([], [])]))[1:] == [
        "store chat: never served, whatever max_length is: 1 empty"
    ]


def test_a_parquet_store_beyond_the_cache_is_told_what_a_full_shuffle_costs(tmp_path: Path, said) -> None:
    path = write_store(tmp_path / "chat", lengths=[100] * 1000, format="parquet") / "data-00000-of-00001.parquet"
    pq.write_table(pq.read_table(path), path, row_group_size=10)
    (line,) = said(path, cache_bytes=120_000)[1:]
    assert line.startswith("store chat: its 100 blocks take 0 MB decoded and block_cache_bytes is 0 MB, so a full ")
    assert "decodes about 7 rows for each row served" in line
    assert line.endswith(
        "use shuffle = block, write smaller row groups or uncompressed Arrow, or raise block_cache_bytes"
    )
    assert len(said(path)) == 1
