"""What all settings have in common, in files and on command lines."""

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError
from pydantic_core import ErrorDetails


def _check_given(path: object) -> object:
    # Path("") is the working directory, which nobody means who writes nothing.
    if path == "":
        raise ValueError("is empty: name a path, or '.' for the working directory")
    return path


GivenPath = Annotated[Path, BeforeValidator(_check_given)]


def _path_or_url(text: object) -> object:
    """A `Path`, unless `text` names a storage: such URLs are left as they are, which paths would not."""
    if not isinstance(text, str | Path):
        raise ValueError(f"{text!r} is neither a path nor a URL: write one in quotes")  # noqa: TRY004 - what pydantic takes
    if not isinstance(text, str) or "://" in text:
        return text
    return Path(str(_check_given(text)))


PathOrUrl = Annotated[Path | str, BeforeValidator(_path_or_url)]


class Settings(BaseModel):
    """Base of all settings: immutable, and an unknown field, an infinity or a NaN is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)


def faults_of(error: ValidationError, whole: str) -> str:
    """What is wrong, field by field; `whole` names what a fault of no single field concerns."""
    return "; ".join(f"{'.'.join(map(str, fault['loc'])) or whole}: {message_of(fault)}" for fault in error.errors())


def message_of(fault: ErrorDetails) -> str:
    """What is wrong with one field, in words that need no pydantic."""
    if fault["type"] == "extra_forbidden":
        return "there is no such field"
    return fault["msg"].removeprefix("Value error, ")
