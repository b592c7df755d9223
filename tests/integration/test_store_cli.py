"""`dataserver store check` and `store cat` as a person runs them: processes, exit statuses, standard streams."""

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dataserver.cli import progress
from dataserver.cli.main import main
from dataserver.testing import running_server, write_store


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


ROWS = [[1, 2, 3, 4, 5], [], [6], [7, 8, 9, 10], [11, 12, 300]]
MASKS = [[0, 0, 1, 1, 0], [], [1], [0, 0, 0, 1], [1, 0, 0]]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "chats.parquet"
    ids, masks = pa.array(ROWS, pa.list_(pa.int32())), pa.array(MASKS, pa.list_(pa.int8()))
    pq.write_table(pa.table({"input_ids": ids, "loss_mask": masks}), path, row_group_size=2)
    return path


@pytest.fixture
def dataserver(tmp_path, monkeypatch, capsys):
    """Run the command in this process, with a home directory of the test's own."""
    monkeypatch.setenv("HOME", str(tmp_path))

    def run(*arguments: object) -> Done:
        try:
            status = main([str(argument) for argument in arguments])
        except SystemExit as ended:
            status = int(ended.code or 0)
        said = capsys.readouterr()
        return Done(status, said.out, said.err)

    return run


def process(tmp_path: Path, *arguments: object) -> subprocess.Popen[str]:
    """The command as a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "dataserver.cli.main", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"HOME": str(tmp_path)},
    )


def test_check_reports_figures_drops_and_lengths(dataserver, store):
    done = dataserver("store", "check", store, "--max-length", 3)
    assert (done.returncode, done.stderr) == (0, "")
    lines = {line[:13].strip(): line[13:] for line in done.stdout.splitlines()}
    assert lines["rows"] == "5"
    assert lines["tokens"] == "13, 3 a row, longest row 5"
    assert lines["served"] == "1 row, 3 tokens at max_length 3 (23.1% of all tokens)"
    assert lines["cut off"] == "2 tokens (40.0% of the served rows)"
    assert [line[13:] for line in done.stdout.splitlines() if line.startswith("dropped")] == [
        "1 row, empty: no tokens",
        "2 rows, no_target: no 1 in loss_mask after the first token, which nothing predicts",
        "1 row, target_cut_off: every target lies beyond max_length",
    ]
    assert f"4 .. 7           2  {'█' * 48}" in done.stdout
    assert "padding: too few tokens to tell" in done.stdout


def test_check_names_shards_what_it_passed_over_and_what_packing_saves(dataserver, tmp_path):
    path = tmp_path / "chat"
    path.mkdir()
    for name, lengths in (("a.parquet", [3, 5] * 40), ("b.parquet", [8] * 10)):
        ids = pa.array([[1] * length for length in lengths], pa.list_(pa.int32()))
        pq.write_table(pa.table({"input_ids": ids, "loss_mask": ids}), path / name)
    (path / "README.md").write_text("about")
    said = dataserver("store", "check", path).stdout
    assert re.search(r"format       parquet, 2 shards, [\d.]+ kB", said)
    assert re.search(r"             b\.parquet: 10 rows, \d+ bytes", said)
    assert "ignored      README.md (" in said
    # Pairs of 3 and 5 fill a micro-batch of 8 to the brim.
    assert re.search(r"\n +8 +[\d.]+% +0\.0%\n", said)


def test_check_draws_the_lengths(dataserver, store, tmp_path):
    picture = tmp_path / "lengths.png"
    assert dataserver("store", "check", store, "--max-length", 3, "--histogram", picture).returncode == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    done = dataserver("store", "check", store, "--histogram", tmp_path / "nowhere" / "lengths.png")
    assert (done.returncode, done.stdout) == (1, "")
    assert "cannot write the picture" in done.stderr


def test_report_says_of_a_server_what_check_says_of_files(dataserver, store):
    checked = json.loads(dataserver("store", "check", store, "--max-length", 3, "--json").stdout)
    with running_server({"chat": store}) as server:
        there = ("store", "report", "chat", "--max-length", 3, "--endpoint", server.endpoint)
        shown = json.loads(dataserver(*there, "--json").stdout)
        text = dataserver(*there).stdout
    assert (checked.pop("verdict"), checked.pop("path"), checked.pop("name")) == ("admitted", str(store), str(store))
    assert shown.pop("name") == "chat"
    assert shown == checked
    as_checked = dataserver("store", "check", store, "--max-length", 3).stdout
    assert text.splitlines()[1:] == as_checked.splitlines()[1:]


def test_check_reads_the_split_that_is_named(dataserver, store, tmp_path):
    splits = tmp_path / "splits"
    (splits / "train").mkdir(parents=True)
    (splits / "dataset_dict.json").write_text('{"splits": ["train"]}')
    store.rename(splits / "train" / "rows.parquet")
    assert json.loads(dataserver("store", "check", splits, "--split", "train", "--json").stdout)["rows"] == 5
    refused = dataserver("store", "check", splits)
    assert (refused.returncode, "several splits of a data set: 'train'" in refused.stderr) == (1, True)


def test_check_shows_what_comes_of_splitting_long_rows(dataserver, store):
    asked = ("store", "check", store, "--max-length", 2, "--long-rows", "split")
    report = json.loads(dataserver(*asked, "--loss-mask", "all", "--json").stdout)
    assert (report["kept_rows"], report["kept_tokens"], report["cut_tokens"]) == (5, 10, 2)
    refused = dataserver(*asked)
    assert (refused.returncode, "only with loss_mask = all" in refused.stderr) == (1, True)


def test_check_prints_json_for_programs(dataserver, store, tmp_path):
    report = json.loads(dataserver("store", "check", store, "--json").stdout)
    assert report["verdict"] == "admitted"
    assert (report["rows"], report["kept_rows"], report["kept_tokens"], report["max_length"]) == (5, 2, 9, 5)
    assert report["dropped"] == {"empty": 1, "no_target": 2}
    assert (report["max_token"], report["max_token_row"], report["token_bytes"]) == (300, 4, 2)
    assert report["shards"][0]["path"] == "chats.parquet"
    assert len(report["fingerprint"]) == 32
    assert (tmp_path / ".cache" / "dataserver" / "index" / "manifests").is_dir()


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_a_refused_store_exits_1_with_one_line_that_names_the_row(dataserver, store, flags):
    masks = [*MASKS[:3], [0, 0, 2, 1], MASKS[4]]
    table = pa.table({"input_ids": pa.array(ROWS, pa.list_(pa.int32())), "loss_mask": pa.array(masks)})
    pq.write_table(table, store, row_group_size=2)
    done = dataserver("store", "check", store, *flags)
    assert done.returncode == 1
    assert done.stderr == (
        "dataserver: Row 3: loss_mask must contain only 0s and 1s. "
        "(shard 'chats.parquet', row group 1, row 3 of the shard, column 'loss_mask')\n"
    )
    if flags:
        said = json.loads(done.stdout)
        assert (said["verdict"], said["row"], said["column"]) == ("refused", "3", "loss_mask")
    else:
        assert done.stdout == ""


def test_a_store_with_nothing_to_serve_is_refused(dataserver, store):
    done = dataserver("store", "check", store, "--max-length", 1)
    assert done.returncode == 1
    assert f"Pretokenized dataset at '{store}' produced 0 usable examples." in done.stderr


def test_a_token_beyond_the_vocabulary_is_refused(dataserver, store):
    assert dataserver("store", "check", store, "--vocab-size", 301).returncode == 0
    done = dataserver("store", "check", store, "--vocab-size", 300)
    assert done.returncode == 1
    assert "Row 4: input_ids holds 300, at or above vocab_size = 300." in done.stderr


def test_looking_with_any_max_length_adds_nothing_to_the_index(dataserver, store, tmp_path):
    index = tmp_path / ".cache" / "dataserver" / "index"
    dataserver("store", "check", store)
    before = sorted(index.rglob("*"))
    for command in ("check", "cat"):
        for max_length in (3, 4, 5):
            assert dataserver("store", command, store, "--max-length", max_length).returncode == 0
    assert dataserver("store", "check", store, "--max-length", 1).returncode == 1, "nothing would be served"
    assert sorted(index.rglob("*")) == before


def test_cat_prints_kept_rows_as_served_and_dropped_rows_whole(dataserver, store):
    done = dataserver("store", "cat", store, "--max-length", 3)
    assert done.returncode == 0
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert rows == [
        {"row": 0, "kept": True, "reason": "", "input_ids": [1, 2, 3], "loss_mask": [0, 0, 1]},
        {"row": 1, "kept": False, "reason": "empty", "input_ids": [], "loss_mask": []},
        {"row": 2, "kept": False, "reason": "no_target", "input_ids": [6], "loss_mask": [1]},
        {"row": 3, "kept": False, "reason": "target_cut_off", "input_ids": ROWS[3], "loss_mask": MASKS[3]},
        {"row": 4, "kept": False, "reason": "no_target", "input_ids": ROWS[4], "loss_mask": MASKS[4]},
    ]


@pytest.mark.parametrize(("given", "rows"), [("1:3", [1, 2]), (":2", [0, 1]), ("3:", [3, 4]), (":", [0, 1, 2, 3, 4])])
def test_cat_takes_a_range_of_rows(dataserver, store, given, rows):
    done = dataserver("store", "cat", store, "--rows", given)
    assert done.returncode == 0
    assert [json.loads(line)["row"] for line in done.stdout.splitlines()] == rows


def test_cat_says_where_a_range_goes_beyond_the_store(dataserver, store):
    done = dataserver("store", "cat", store, "--rows", "4:99")
    assert (done.returncode, json.loads(done.stdout)["row"]) == (0, 4)
    assert done.stderr == f"dataserver: '{store}' ends after row 4\n"


def test_all_tokens_may_be_targets(dataserver, store):
    done = dataserver("store", "cat", store, "--loss-mask", "all", "--rows", "0:3")
    assert [json.loads(line)["loss_mask"] for line in done.stdout.splitlines()] == [[1] * 5, [], [1]]


def test_a_long_check_shows_how_far_it_is_on_a_terminal_and_wipes_it(dataserver, store, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(progress, "_BAR_AFTER_S", 0.0)
    monkeypatch.setattr(progress, "_BAR_EVERY_S", 0.0)
    monkeypatch.setattr(sys, "stderr", Terminal())
    done = dataserver("store", "check", store)
    assert done.returncode == 0
    said = sys.stderr.getvalue()
    assert re.search(r"\rchecking #+ 100% of 0\.00 GB, 0 s left ", said)
    assert said.endswith("\r\033[K")


def test_a_long_check_leaves_a_line_now_and_then_in_a_log(dataserver, store, monkeypatch):
    monkeypatch.setattr(progress, "_LINE_EVERY_S", 0.0)
    said = dataserver("store", "check", store).stderr
    assert said.splitlines()[-1] == "checking: 100% of 0.00 GB, 0 s left"


@pytest.mark.parametrize("rows", ["5:", "5:9"])
def test_a_range_beyond_the_store_is_an_error(dataserver, store, rows):
    done = dataserver("store", "cat", store, "--rows", rows)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"dataserver: There is no row 5 in '{store}', which has 5 rows.\n"


def test_a_path_with_nothing_there_exits_1(dataserver, tmp_path):
    done = dataserver("store", "check", tmp_path / "nowhere")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("nothing",),
        ("store",),
        ("store", "check"),
        ("store", "check", "x", "--max-length", "0"),
        ("store", "check", "x", "--loss-mask", "some"),
        ("store", "cat", "x", "--rows", "5"),
        ("store", "cat", "x", "--rows", "-2:3"),
        ("store", "cat", "x", "--rows", "2:2"),
    ],
)
def test_wrong_usage_exits_2(dataserver, arguments):
    done = dataserver(*arguments)
    assert done.returncode == 2
    assert "usage: dataserver" in done.stderr


def test_a_reader_that_leaves_early_is_no_error_worth_words(tmp_path):
    path = tmp_path / "many.parquet"
    ids = pa.array([[1, 2]] * 50_000)
    table = pa.table({"input_ids": ids, "loss_mask": pa.array([[0, 1]] * 50_000, pa.list_(pa.int8()))})
    pq.write_table(table, path)
    with process(tmp_path, "store", "cat", path) as running:
        assert json.loads(running.stdout.readline())["row"] == 0
        running.stdout.close()
        assert running.stderr.read() == ""


def test_a_process_exits_1_on_a_refusal(tmp_path, store):
    with process(tmp_path, "store", "check", store, "--vocab-size", 7) as running:
        stdout, stderr = running.communicate()
    assert (running.returncode, stdout) == (1, "")
    assert stderr.startswith("dataserver: Row 3: input_ids holds 7, at or above vocab_size = 7.")


def test_neither_the_commands_of_a_server_nor_a_compiler_are_imported_for_files_on_disk(tmp_path):
    store = write_store(tmp_path / "store", lengths=[8] * 64)  # enough for an estimate of what packing is worth
    code = (
        "import sys; from dataserver.cli.main import main; main(['store', 'check', sys.argv[1]]); "
        "print(sorted({'grpc', 'sqlalchemy', 'pyarrow', 'numba'} & set(sys.modules)))"
    )
    said = [
        subprocess.run(
            [sys.executable, "-c", code, str(store)],
            capture_output=True,
            text=True,
            check=True,
            env=os.environ | {"HOME": str(tmp_path)},
        ).stdout.splitlines()[-1]
        for _ in ("cold", "warm")
    ]
    assert said == ["['pyarrow']", "[]"]
