"""Waits until a URL answers with 200, then becomes a command: when_healthy.py URL COMMAND..."""

import os
import sys
import time
from urllib.error import URLError
from urllib.request import urlopen

POLL_S = 0.5


def is_healthy(url: str) -> bool:
    """Whether it answers with 200 now."""
    try:
        with urlopen(url, timeout=5) as answer:  # noqa: S310 - a URL of the demo's own
            return bool(answer.status == 200)
    except (URLError, OSError):
        return False


if __name__ == "__main__":
    while not is_healthy(sys.argv[1]):
        time.sleep(POLL_S)
    os.execvp(sys.argv[2], sys.argv[2:])  # noqa: S606 - no shell is meant
