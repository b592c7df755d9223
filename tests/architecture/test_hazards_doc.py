"""docs/hazards.md names a test for every kind of fault, and every test that it names exists."""

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = (TESTS.parent / "docs" / "hazards.md").read_text(encoding="utf-8")
KINDS = {"L": 9, "O": 4, "T": 8, "S": 17, "C": 14, "M": 5, "P": 6, "N": 6}


def rows() -> list[list[str]]:
    """The cells of every row: id, what comes in, what happens, tests."""
    lines = [line for line in PAGE.splitlines() if re.match(r"\| [A-Z]\d", line)]
    return [[cell.strip() for cell in line.strip("|").split(" |")] for line in lines]


def test_every_kind_has_a_row_that_says_what_happens() -> None:
    ids = [row[0] for row in rows()]
    assert ids == [f"{letter}{2 * number + 1}" for letter, count in KINDS.items() for number in range(count)]
    assert [row[0] for row in rows() if len(row) != 4 or not row[1] or not row[2]] == []


def test_every_row_has_a_test_or_says_that_it_has_none() -> None:
    untested = {row[0] for row in rows() if not row[3]}
    assert untested == {row[0] for row in rows() if row[2] == "not covered yet"}


def test_every_test_that_is_named_exists() -> None:
    named = [name for row in rows() for name in re.findall(r"`([^`]+)`", row[3])]
    assert [name for name in named if not exists(*name.partition("::")[::2])] == []


def exists(path: str, test: str) -> bool:
    file = TESTS / path
    if not file.is_file():
        return False
    functions = {
        node.name
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    return not test or test in functions
