"""Generates the Python code of the contract, or says what of it is stale.

    protos/**/v1/*.proto ──protoc──> <same path>_pb2.py, _pb2.pyi, and _pb2_grpc.py for services

The path of a .proto is the path of its Python package, because protoc writes imports by it.
Run by `make proto`, and with `--check` by `make check` and the contract tests.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

REPOSITORY = Path(__file__).resolve().parent.parent
# What protoc writes. Python's own __pycache__/*_pb2.*.pyc beside it are none of it.
GENERATED_SUFFIXES = ("_pb2.py", "_pb2.pyi", "_pb2_grpc.py")


def generate(protos: Path, out: Path) -> None:
    """Write the code of all .proto files under `protos` into the tree `out`; raise on a fault of protoc."""
    sources = sorted(path.relative_to(protos).as_posix() for path in protos.glob("**/v*/*.proto"))
    if not sources:
        raise FileNotFoundError(f"no .proto file under {protos}")
    services = [source for source in sources if source.endswith("_service.proto")]
    run_protoc(protos, [f"--python_out={out}", f"--pyi_out={out}", *sources])
    run_protoc(protos, [f"--grpc_python_out={out}", *services])


def run_protoc(protos: Path, arguments: list[str]) -> None:
    """Run the protoc that comes with grpcio-tools, whose own includes hold google/protobuf/*.proto."""
    includes = [f"-I{protos}", f"-I{files('grpc_tools') / '_proto'}"]
    status = protoc.main(["protoc", *includes, *arguments])
    if status != 0:
        raise RuntimeError(f"protoc failed with status {status}; its message stands above")


def stale_files(protos: Path, tree: Path) -> list[str]:
    """Generated files that in `tree` are missing, differ from `protos`, or have no .proto any more."""
    with tempfile.TemporaryDirectory() as scratch:
        generate(protos, Path(scratch))
        fresh = dict(generated_files(Path(scratch)))
    packages = {path.rsplit("/", 1)[0] for path in fresh}
    there = {path: data for package in packages for path, data in generated_files(tree, package)}
    return sorted(path for path in fresh.keys() | there.keys() if fresh.get(path) != there.get(path))


def generated_files(tree: Path, package: str = "") -> Iterator[tuple[str, bytes]]:
    """Each generated file under `tree`/`package`: its path relative to `tree`, and its bytes."""
    for path in sorted((tree / package).rglob("*_pb2*")):
        if path.name.endswith(GENERATED_SUFFIXES):
            yield path.relative_to(tree).as_posix(), path.read_bytes()


def main() -> int:
    """Entry point; the exit code says whether the tree is fresh."""
    parser = argparse.ArgumentParser(description="Generate the Python code of protos/ into the tree.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when a file is stale")
    check = parser.parse_args().check
    protos = REPOSITORY / "protos"
    stale = stale_files(protos, REPOSITORY)
    if not check:
        for path in stale:
            (REPOSITORY / path).unlink(missing_ok=True)
        generate(protos, REPOSITORY)
        stale = [f"{path} (written)" for path in stale]
    elif stale:
        print("generated code is stale; run `make proto`:", file=sys.stderr)
    for path in stale:
        print(f"  {path}", file=sys.stderr)
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
