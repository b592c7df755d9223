"""`dataserver store index`: what it leaves is what a later opening finds."""

import re

import fsspec
import pytest

from dataserver.cli.main import main
from dataserver.storage.memory import MemoryStorage
from dataserver.stores import open_store
from dataserver.testing import write_store


@pytest.mark.parametrize("scheme", ["", "file://", "memory://"])
def test_a_store_that_was_indexed_opens_without_being_read(tmp_path, monkeypatch, capsys, scheme):
    directory = write_store(tmp_path / "chat", lengths=[5, 9, 4, 30] * 10, format="parquet", shards=3)
    where = f"{scheme}{directory}"
    if scheme == "memory://":
        where = f"memory://{tmp_path.name}"
        for path in directory.iterdir():
            fsspec.filesystem("memory").pipe_file(f"/{tmp_path.name}/{path.name}", path.read_bytes())
    assert main(["store", "index", where, "--index-dir", str(tmp_path / "index")]) == 0
    said = capsys.readouterr().out
    assert re.search(r"40 rows, 480 tokens", said)

    def no_read(self, info, begin, end):
        raise AssertionError(f"{info.path} was read")

    monkeypatch.setattr(MemoryStorage, "read", no_read)
    with open_store(where, index_dir=tmp_path / "index") as store:
        assert store.fingerprint in said
        assert store.view(64).rows == 40


def test_a_storage_option_is_a_name_and_a_value(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["store", "index", "memory://nothing", "--storage-option", "endpoint"])
    assert "'endpoint' is not NAME=VALUE" in capsys.readouterr().err
    assert main(["store", "index", "memory://nothing", "--index-dir", str(tmp_path)]) != 0
    assert "nothing at 'memory://nothing'" in capsys.readouterr().err
