"""Reading a configuration: defaults < TOML file < `--section.field=value` on the command line."""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from dataserver.errors import InvalidConfigError
from dataserver.settings import message_of

ConfigT = TypeVar("ConfigT", bound=BaseModel)


def read_config(model: type[ConfigT], path: Path, overrides: Sequence[str] = ()) -> ConfigT:
    """Read a TOML file and lay `section.field=value` overrides over it.

    Raises `InvalidConfigError` naming the file or the flag, the field and the value.
    """
    try:
        fields = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidConfigError(f"cannot read the configuration {path}: {error}") from error
    for override in overrides:
        _override(fields, override)
    return check_config(model, fields, str(path), overrides)


def check_config(
    model: type[ConfigT], fields: Mapping[str, Any], origin: str, overrides: Sequence[str] = ()
) -> ConfigT:
    """Validate a configuration that came from `origin` and `overrides`; raises `InvalidConfigError`."""
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        faults = "; ".join(_fault(fault, origin, overrides) for fault in error.errors())
        raise InvalidConfigError(faults) from error


def overrides_of(words: Sequence[str]) -> list[str]:
    """`--section.field=value` words of a command line, bare; raises `InvalidConfigError` for any other word."""
    foreign = [word for word in words if not word.startswith("--") or "." not in word.partition("=")[0]]
    if foreign:
        raise InvalidConfigError(f"unknown: {' '.join(foreign)}; a field is set by --section.field=value")
    return [word.removeprefix("--") for word in words]


def _fault(fault: ErrorDetails, origin: str, overrides: Sequence[str]) -> str:
    """One fault, under the flag that brought it, else under `origin`."""
    field = ".".join(map(str, fault["loc"]))
    is_unknown = fault["type"] == "extra_forbidden"
    for override in reversed(overrides):
        name = override.partition("=")[0]
        if f"{field}.".startswith(f"{name}.") or (is_unknown and name.startswith(f"{field}.")):
            origin = f"--{override}"
            break
    if is_unknown:
        return f"{origin}: there is no such field as {field}"
    return f"{origin}: {field or 'configuration'}: {message_of(fault)} (got {fault['input']!r:.80})"


def _override(fields: dict[str, Any], override: str) -> None:
    """Set one field. The value is TOML where it parses as TOML, `none` for nothing, else a string."""
    name, equals, text = override.partition("=")
    *sections, field = name.split(".")
    if not equals or not sections or not all([*sections, field]):
        raise InvalidConfigError(f"override {override!r} is not of the form section.field=value")
    for section in sections:
        fields = fields.setdefault(section, {})
        if not isinstance(fields, dict):
            raise InvalidConfigError(f"override {override!r}: {section!r} is a value, not a section")
    fields[field] = _value(text)


def _value(text: str) -> Any:  # noqa: ANN401 - any TOML value
    if text == "none":
        return None
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
