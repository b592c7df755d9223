"""How far `store render` is, on a terminal and in a log."""

import io

import pytest

from dataserver.cli import store_render
from dataserver.render.part import PartReport
from dataserver.wire.store_info import RenderingInfo


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    for name in ("_FIRST_AFTER_S", "_LINE_EVERY_S", "_BAR_EVERY_S"):
        monkeypatch.setattr(store_render, name, 0.0)


def shown(stderr: io.StringIO, monkeypatch) -> str:
    monkeypatch.setattr("sys.stderr", stderr)
    with store_render._Rate() as rate:
        rate.show(RenderingInfo(stage="fetching", done=5_000_000, total=20_000_000, left_s=40.0))
        rate.show(RenderingInfo(stage="fetching", done=5_000_000))
        rate(0, 4, PartReport())
        rate(1, 4, PartReport(rows=1000, tokens=200_000))
    return stderr.getvalue()


def test_a_terminal_has_a_bar_with_rates_and_the_time_left_that_goes_when_it_is_done(monkeypatch):
    said = shown(Terminal(), monkeypatch)
    assert f"\r\033[K{'#' * 8}{'.' * 22} fetched: 25% of 20 MB, about 40 s left" in said
    assert f"\r\033[K{'.' * 30} fetched: 5 MB" in said
    last = said.split("\r\033[K")[-2]
    assert last.startswith("#" * 8 + "." * 22 + " rendered: 25%, 1,000 rows, ")
    for word in (" rows/s, ", " tokens/s"):
        assert word in last
    assert said.endswith("\r\033[K")


def test_a_log_has_a_line_now_and_then(monkeypatch):
    lines = shown(io.StringIO(), monkeypatch).splitlines()
    assert lines[:2] == ["fetched: 25% of 20 MB, about 40 s left", "fetched: 5 MB"]
    assert lines[-1].startswith("rendered: 25%, 1,000 rows, ")
    assert "\r" not in "".join(lines)
