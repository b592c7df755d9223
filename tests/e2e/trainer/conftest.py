"""Puts the crash stage and the trainer laboratory on the path."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2] / "integration" / "trainer")]
