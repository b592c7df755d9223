"""What clients send stays inside the line that quotes it."""

import json
import logging
import sys

import pytest

from dataserver.hosting.logs import JsonFormatter, TextFormatter

HOSTILE = "a\nWARNING server: forged\x1b[2Jb\r\x9b"


def record(*, trace: bool = False) -> logging.LogRecord:
    return logging.LogRecord(
        "dataserver", logging.INFO, "file", 1, "refused: %s", (HOSTILE,), sys.exc_info() if trace else None
    )


@pytest.mark.parametrize("formatter", [TextFormatter("worker-1"), JsonFormatter("worker-1")])
def test_a_message_is_one_line_without_control_characters(formatter: logging.Formatter):
    line = formatter.format(record())
    assert len(line.splitlines()) == 1
    assert not {"\x1b", "\x9b"} & set(line)
    assert "worker-1" in line


def test_the_json_line_holds_the_message_as_it_was():
    assert json.loads(JsonFormatter("worker-1").format(record()))["message"] == f"refused: {HOSTILE}"


def test_a_trace_keeps_its_lines():
    try:
        json.loads("{")
    except ValueError:
        text = TextFormatter("worker-1").format(record(trace=True))
    first, *trace = text.splitlines()
    assert "forged" in first
    assert trace[-1].startswith("json.decoder.JSONDecodeError")
