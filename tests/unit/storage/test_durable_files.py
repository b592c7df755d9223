"""Files that have their name only when they are whole."""

from pathlib import Path

import pytest

from dataserver.durable import flush_to_disk, write_durably


def test_a_file_that_cannot_be_written_whole_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "weights.json"
    write_durably(path, b"one ", memoryview(b"whole"))
    flush_to_disk(tmp_path)
    flush_to_disk(path)
    with pytest.raises(TypeError):
        write_durably(path, b"half", None)  # type: ignore[arg-type]
    assert path.read_bytes() == b"one whole"
    write_durably(path, b"two")
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("weights.json", b"two")]
