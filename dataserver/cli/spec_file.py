"""Run specs and orders in files, for the commands that send them to a server."""

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from dataserver.errors import InvalidSpecError

if TYPE_CHECKING:
    from dataserver.run_spec import OrderSpec, RunSpec, Spec

    SpecT = TypeVar("SpecT", bound=Spec)


def read_spec(path: Path) -> "RunSpec":
    """Read a run spec: the file as a whole, or a trainer's table `[run]`, its name aside.

    Raises `InvalidSpecError` with file and field.
    """
    from dataserver.run_spec import RunSpec

    return _validated(RunSpec, path, {name: value for name, value in _table(path).items() if name != "name"})


def read_order(path: Path) -> "OrderSpec":
    """Read the order of a run spec, as `read_spec` finds it; the rest of the file is passed over."""
    from dataserver.run_spec import OrderSpec

    order = _table(path).get("order")
    if not isinstance(order, dict):
        raise InvalidSpecError(f"{path} has no table [order], nor [run.order]", field="order")
    return _validated(OrderSpec, path, order)


def _table(path: Path) -> dict[str, Any]:
    try:
        document = tomllib.loads(path.read_text())
    except OSError as error:
        raise InvalidSpecError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise InvalidSpecError(f"{path} is not TOML: {error}") from error
    table = document.get("run", document)
    return table if isinstance(table, dict) else {}


def _validated(spec: "type[SpecT]", path: Path, fields: dict[str, Any]) -> "SpecT":
    from pydantic import ValidationError

    from dataserver.wire.messages import spec_error

    try:
        return spec.model_validate(fields)
    except ValidationError as error:
        raise InvalidSpecError(f"{path}: {spec_error(error).message}") from error
