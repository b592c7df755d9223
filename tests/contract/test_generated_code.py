"""The Python code of the contract in the tree is what protos/ give today."""

import importlib.util
import py_compile
import shutil
from pathlib import Path
from types import ModuleType

import pytest

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_protos", REPOSITORY / "protos" / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tree(tmp_path: Path, generator: ModuleType) -> Path:
    """A copy of the contract, with its code generated from it."""
    shutil.copytree(REPOSITORY / "protos", tmp_path / "protos")
    generator.generate(tmp_path / "protos", tmp_path)
    return tmp_path


def test_generated_code_in_the_tree_is_fresh(generator: ModuleType) -> None:
    assert generator.stale_files(REPOSITORY / "protos", REPOSITORY) == []


def test_a_generated_file_that_was_edited_is_caught(generator: ModuleType, tree: Path) -> None:
    edited = tree / "dataserver" / "v1" / "cursor_pb2.pyi"
    edited.write_text(edited.read_text() + "# by hand\n")
    assert generator.stale_files(tree / "protos", tree) == ["dataserver/v1/cursor_pb2.pyi"]


def test_a_proto_that_changed_without_its_code_is_caught(generator: ModuleType, tree: Path) -> None:
    proto = tree / "protos" / "dataserver" / "v1" / "cursor.proto"
    proto.write_text(proto.read_text().replace("int64 step = 3;", "int64 steps = 3;"))
    assert "dataserver/v1/cursor_pb2.py" in generator.stale_files(tree / "protos", tree)


def test_code_whose_proto_is_gone_or_was_never_generated_is_caught(generator: ModuleType, tree: Path) -> None:
    (tree / "dataserver" / "v1" / "leftover_pb2.py").write_text("")
    (tree / "dataserver" / "v1" / "error_pb2.py").unlink()
    assert generator.stale_files(tree / "protos", tree) == [
        "dataserver/v1/error_pb2.py",
        "dataserver/v1/leftover_pb2.py",
    ]


def test_bytecode_that_python_keeps_beside_the_code_is_not_stale(generator: ModuleType, tree: Path) -> None:
    py_compile.compile(str(tree / "dataserver" / "v1" / "cursor_pb2.py"), doraise=True)
    assert list(tree.rglob("cursor_pb2.*.pyc"))
    assert generator.stale_files(tree / "protos", tree) == []


def test_a_proto_that_does_not_compile_stops_the_generator(generator: ModuleType, tree: Path) -> None:
    (tree / "protos" / "dataserver" / "v1" / "broken.proto").write_text('syntax = "proto3"; message {')
    with pytest.raises(RuntimeError, match="protoc failed"):
        generator.generate(tree / "protos", tree)
