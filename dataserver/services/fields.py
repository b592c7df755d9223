"""Fields of requests, checked: each function returns a good value or raises `InvalidRequestError` naming the field."""

from dataserver.errors import InvalidRequestError
from dataserver.run_spec import MAX_MICRO_BATCH_TOKENS, check_run_name

DEFAULT_PAGE_SIZE = 100
LARGEST_PAGE_SIZE = 1000

LARGEST_INT64 = 2**63 - 1


def run_name(name: str) -> str:
    """A legal run name."""
    try:
        return check_run_name(name)
    except ValueError as error:
        raise InvalidRequestError(str(error)) from error


def within(field: str, value: int, least: int, most: int = LARGEST_INT64) -> int:
    """`value` if it is from `least` to `most`."""
    if not least <= value <= most:
        bound = f"at least {least}" if most == LARGEST_INT64 else f"{least} to {most}"
        raise InvalidRequestError(f"{field} = {value}: give {bound}")
    return value


def page_size(value: int) -> int:
    """Entries of a page; 0 stands for the default."""
    return within("page_size", value, 0, LARGEST_PAGE_SIZE) or DEFAULT_PAGE_SIZE


def max_length(value: int) -> int | None:
    """Longest sample, or None for 0, which stands for no bound."""
    within("max_length", value, 0, MAX_MICRO_BATCH_TOKENS)
    if value == 1:
        raise InvalidRequestError("max_length = 1: a sample needs two tokens for one target; give at least 2, or 0")
    return value or None
