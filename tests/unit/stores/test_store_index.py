"""The index: built once, whole or not at all, by any number of processes; and the watch over the files."""

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
from view_reading import tokens_of

from dataserver.errors import InvalidConfigError, StoreDamagedError
from dataserver.stores import open_store, shard_rows
from dataserver.stores.index import Building


@pytest.fixture
def path(one_file, table):
    return one_file(table([[1, 2, 3], [4, 5]]))


def python(code, *arguments, **options):
    """A Python process that runs `code` with `arguments` in sys.argv."""
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options)


def test_only_the_first_open_reads_the_rows(path, index_dir):
    reads = []
    open_store(path, index_dir=index_dir, progress=lambda done, total: reads.append((done, total)))
    assert reads[-1] == (path.stat().st_size, path.stat().st_size)
    reads.clear()
    open_store(path, index_dir=index_dir, progress=lambda done, total: reads.append((done, total)))
    assert reads == []


def test_a_warm_open_and_its_reads_import_no_pyarrow(path, index_dir, opened):
    opened(path).view(2)
    code = """
        import sys
        from pathlib import Path
        from dataserver.stores import open_store
        store = open_store(sys.argv[1], index_dir=Path(sys.argv[2]))
        assert store[0].input_ids.tolist() == [1, 2, 3]
        assert store.view(2).rows == 2
        print(sorted({"pyarrow", "grpc", "sqlalchemy"} & set(sys.modules)))
    """
    process = python(code, path, index_dir)
    assert process.communicate()[0].strip() == "[]"


def test_a_store_without_rows_opens_warm_too(one_file, table, index_dir, form):
    path = one_file(table([], []), form)
    open_store(path, index_dir=index_dir)
    store = open_store(path, index_dir=index_dir, progress=lambda *_: pytest.fail("was scanned again"))
    assert len(store) == 0


def test_a_changed_file_is_another_store_at_the_next_open(one_file, table, opened, path):
    before = opened(path)
    one_file(table([[1, 2, 3], [4, 6]]))
    after = opened(path)
    assert after.fingerprint != before.fingerprint
    assert after[1].input_ids.tolist() == [4, 6]


def test_equal_content_has_an_equal_fingerprint_wherever_it_lies(tmp_path, table, write, form):
    prints = set()
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        for shard in range(2):
            write(tmp_path / name / f"{name}-{shard}", table([[1, shard]]), form)
        prints.add(open_store(tmp_path / name, index_dir=tmp_path / f"index-{name}").fingerprint)
    assert len(prints) == 1


def test_the_order_of_shards_is_part_of_the_fingerprint(tmp_path, table, write, opened):
    for name, first, second in (("x", 1, 2), ("y", 2, 1)):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "a", table([[1, first]]), "arrow_stream")
        write(tmp_path / name / "b", table([[1, second]]), "arrow_stream")
    assert opened(tmp_path / "x").fingerprint != opened(tmp_path / "y").fingerprint


@pytest.mark.parametrize("change", ["grown", "touched", "replaced", "gone"])
def test_a_file_that_changes_while_it_is_open_is_damage(path, opened, monkeypatch, change):
    monkeypatch.setattr(shard_rows, "_CHECK_INTERVAL_S", 0.0)
    store = opened(path)
    view = store.view(3)
    assert store[1].input_ids.tolist() == [4, 5]
    store.check_unchanged()
    if change == "grown":
        path.write_bytes(path.read_bytes() + b"more")
    elif change == "touched":
        os.utime(path, ns=(1, 1))
    elif change == "replaced":
        stat = path.stat()
        shutil.copy(path, path.with_suffix(".copy"))
        path.with_suffix(".copy").rename(path)
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    else:
        path.unlink()
    for read in (store.check_unchanged, lambda: store[1], lambda: _read(view)):
        with pytest.raises(
            StoreDamagedError, match=rf"Shard '{path.name}' in .* (changed after it was admitted|is gone)"
        ):
            read()


def test_shards_are_compared_with_the_manifest_in_turn(tmp_path, opened, write, table, monkeypatch):
    monkeypatch.setattr(shard_rows, "_MOST_CHECKED", 2)
    (tmp_path / "store").mkdir()
    paths = [write(tmp_path / "store" / str(number), table([[1, 2]]), "parquet") for number in range(5)]
    store = opened(tmp_path / "store")
    os.utime(paths[4], ns=(1, 1))
    found = []
    for _ in range(5):
        try:
            store.check_unchanged()
            found.append(False)
        except StoreDamagedError:
            found.append(True)
    assert found == [False, False, True, False, True]


def _read(view):
    tokens_of(view, np.arange(view.rows))


def test_a_deleted_index_is_built_anew(path, index_dir, opened):
    store = opened(path)
    shutil.rmtree(index_dir)
    assert store.view(2).rows == 2, "an open store can build its views again"
    assert opened(path)[0].input_ids.tolist() == [1, 2, 3]


@pytest.mark.parametrize("name", ["lengths.i4", "targets.i4", "blocks.i8"])
def test_a_truncated_index_is_replaced(path, index_dir, opened, name):
    opened(path)
    (directory,) = (index_dir / "stores").iterdir()
    (directory / name).write_bytes((directory / name).read_bytes()[:-4])
    assert opened(path)[1].input_ids.tolist() == [4, 5]
    assert opened(path).lengths().tolist() == [3, 2]


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"format": "arrow"}'])
def test_a_broken_manifest_or_view_is_replaced(path, index_dir, opened, text):
    opened(path).view(2)
    (manifest,) = (index_dir / "manifests").iterdir()
    manifest.write_text(text)
    (figures,) = (index_dir / "views").glob("*/figures.json")
    figures.write_text(text)
    assert opened(path).view(2).rows == 2
    assert json.loads(manifest.read_text())["content"]["rows"] == 2


def flip_a_bit(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    return bytes(data)


@pytest.mark.parametrize("name", ["lengths.i4", "first_targets.i4", "targets.i4", "blocks.i8"])
def test_a_flipped_bit_in_an_array_is_noticed_and_the_index_built_anew(path, index_dir, opened, name):
    opened(path)
    (array,) = (index_dir / "stores").glob(f"*/{name}")
    flipped = flip_a_bit(array)
    scanned = []
    store = open_store(path, index_dir=index_dir, progress=lambda done, total: scanned.append(done))
    assert scanned
    assert [row.input_ids.tolist() for row in store] == [[1, 2, 3], [4, 5]]
    assert array.read_bytes() != flipped


@pytest.mark.parametrize("name", ["rows.i8", "targets.i4", "figures.json"])
def test_a_flipped_bit_in_a_view_is_noticed_and_the_view_built_anew(one_file, table, index_dir, opened, name):
    store = opened(one_file(table([[1], [1, 2, 3], [4, 5], [6]])))
    store.view(2)
    (file,) = (index_dir / "views").glob(f"*/{name}")
    flipped = flip_a_bit(file)
    view = store.view(2)
    assert view.store_rows(np.arange(2)).tolist() == [1, 2]
    assert view.targets(np.arange(2)).tolist() == [1, 1]
    assert file.read_bytes() != flipped


def test_a_flipped_bit_in_a_manifest_is_noticed(path, index_dir, opened):
    opened(path)
    (manifest,) = (index_dir / "manifests").iterdir()
    text = manifest.read_text()
    manifest.write_text(text.replace('"rows": 2', '"rows": 3'))
    assert len(opened(path)) == 2
    assert manifest.read_text() == text


def test_an_index_directory_that_cannot_be_written_is_named(path, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(InvalidConfigError, match=f"The index directory '{blocked / 'index'}' cannot be written"):
        open_store(path, index_dir=blocked / "index")


def test_a_process_killed_while_it_scans_leaves_nothing_that_counts(path, index_dir, opened):
    code = """
        import sys
        from pathlib import Path
        from dataserver.stores import open_store
        def stop(done, total):
            print("scanning", flush=True)
            sys.stdin.read()
        open_store(sys.argv[1], index_dir=Path(sys.argv[2]), progress=stop)
    """
    process = python(code, path, index_dir)
    assert process.stdout.readline() == "scanning\n"
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert [entry.name.partition("-")[0] for entry in index_dir.iterdir()] == [".building"]
    assert opened(path)[1].input_ids.tolist() == [4, 5]


def test_what_killed_processes_left_is_swept_after_a_day(index_dir):
    for name, age_s in (("old", 90_000), ("new", 100)):
        left = index_dir / f".building-{name}"
        left.mkdir(parents=True)
        os.utime(left, (time.time() - age_s,) * 2)
    with Building(index_dir):
        pass
    assert [entry.name for entry in index_dir.iterdir()] == [".building-new"]


def test_a_pass_of_more_than_a_day_is_left_alone_while_it_writes(index_dir):
    with Building(index_dir) as building:
        building.append("lengths", np.arange(3))
        os.utime(building.path, (time.time() - 90_000,) * 2)
        with Building(index_dir):
            pass
        assert building.path.exists()


def test_processes_that_build_the_same_index_at_once_agree(path, index_dir):
    code = """
        import sys
        from pathlib import Path
        from dataserver.stores import open_store
        def meet(done, total):
            print("scanning", flush=True)
            sys.stdin.readline()
        store = open_store(sys.argv[1], index_dir=Path(sys.argv[2]), progress=meet)
        print(store.fingerprint, store.view(2).rows, store[1].input_ids.tolist())
    """
    processes = [python(code, path, index_dir) for _ in range(3)]
    for process in processes:
        assert process.stdout.readline() == "scanning\n"
    said = set()
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        said.add(process.communicate()[0])
        assert process.returncode == 0
    assert len(said) == 1
    assert len(list((index_dir / "stores").iterdir())) == 1
    assert sorted(entry.name for entry in index_dir.iterdir()) == ["manifests", "stores", "views"]


def test_a_build_that_finds_a_broken_directory_replaces_it(index_dir):
    final = index_dir / "stores" / "x"
    final.mkdir(parents=True)
    (final / "half").write_bytes(b"1")
    with Building(index_dir) as building:
        building.append("whole", np.arange(3))
        building.publish(final)
    assert [file.name for file in final.iterdir()] == ["whole"]
    assert [entry.name for entry in index_dir.iterdir()] == ["stores"]
