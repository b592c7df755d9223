"""Modules of the stores import downwards: in no circle, not even in one that functions or type checks hide."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

STORES = Path(__file__).parents[2] / "dataserver" / "stores"


def imported(path: Path) -> set[str]:
    """Names of the modules of the stores that the file imports, wherever it does."""
    names = [
        node.module or ""
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom)
    ]
    return {name.removeprefix("dataserver.stores.") for name in names if name.startswith("dataserver.stores.")}


def test_the_modules_of_the_stores_import_in_no_circle() -> None:
    graph = {path.stem: imported(path) for path in STORES.glob("*.py") if path.stem != "__init__"}
    order = list(TopologicalSorter(graph).static_order())
    assert set(order) == set(graph)
    assert order.index("view") < order.index("store") < order.index("opening")
