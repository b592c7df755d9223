"""Whole numbers of the command line, within what the contract's fields hold."""

import argparse
from collections.abc import Callable
from typing import Final

# An int32 and an int64 of the contract.
MAX_RANKS: Final = 2**31 - 1
MAX_COUNT: Final = 2**63 - 1


def whole_number(low: int, high: int = MAX_COUNT) -> Callable[[str], int]:
    """A type for argparse: a whole number from `low` to `high`."""

    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = low - 1
        if not low <= number <= high:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {low} to {high}")
        return number

    return read
