"""Makes `runlab` importable, here and for scorers that a configuration names."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
