"""Rooms stay small enough to see whole, and each says at its door what it is for.

A file that has outgrown the limit holds two things; a function that has, several steps. What does not fit is
split; there are no exceptions.
"""

import ast
from pathlib import Path

# Three screens; a function, one and a half.
LINES_OF_A_FILE = 250
LINES_OF_A_FUNCTION = 60

Sources = dict[Path, str]


def long_functions(source: str) -> list[str]:
    functions = [
        node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    lengths = [(node.name, (node.end_lineno or node.lineno) - node.lineno + 1) for node in functions]
    return [f"{name}: {length} lines" for name, length in lengths if length > LINES_OF_A_FUNCTION]


def test_files_can_be_read_in_one_go(sources: Sources) -> None:
    lengths = {str(path): text.count("\n") for path, text in sources.items()}
    assert {path: length for path, length in lengths.items() if length > LINES_OF_A_FILE} == {}


def test_functions_can_be_seen_whole(sources: Sources) -> None:
    found = {str(path): long_functions(text) for path, text in sources.items()}
    assert {path: functions for path, functions in found.items() if functions} == {}


def test_a_long_function_is_seen() -> None:
    assert long_functions("def f():\n" + "    x = 1\n" * LINES_OF_A_FUNCTION) == ["f: 61 lines"]


def test_every_module_says_what_it_is_for(sources: Sources) -> None:
    silent = [
        path for path, text in sources.items() if "v1" not in path.parts and not ast.get_docstring(ast.parse(text))
    ]
    assert silent == []


def test_no_module_is_named_after_nothing(sources: Sources) -> None:
    assert [path for path in sources if path.stem in {"utils", "util", "helpers", "common", "misc"}] == []
