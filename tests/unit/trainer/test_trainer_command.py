"""The command line says what is wrong in one line."""

from pathlib import Path

import pytest

from trainer.cli import main


def test_a_bad_configuration_is_one_line_that_names_the_rank(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "3")
    assert main([str(tmp_path / "absent.toml"), "--data-endpoint", "127.0.0.1:1"]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("trainer: rank 3: cannot read the configuration")


@pytest.mark.parametrize("word", ["--resum=auto", "--lr=3", "extra", "optim.lr=3"])
def test_a_word_that_is_no_field_is_refused(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["train.toml", "--data-endpoint", "127.0.0.1:1", word])
    assert ended.value.code == 2
    assert f"unknown: {word}" in capsys.readouterr().err


def test_exporting_what_is_no_checkpoint_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(tmp_path), str(tmp_path / "out")]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert "no complete checkpoint" in line
