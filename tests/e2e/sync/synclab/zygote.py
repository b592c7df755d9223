"""Runs stories, each in a forked process, as the crash laboratory's zygote does."""

import httpx  # noqa: F401  # once here, not in every process
from crashlab.zygote import main

from synclab.random_story import random_story
from synclab.scenarios import SCENARIOS

if __name__ == "__main__":
    main(SCENARIOS | {"random_story": random_story})
