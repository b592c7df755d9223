"""What docs/formats.md shows runs as it stands."""

import os
import re
import subprocess
import sys
from pathlib import Path

DOCUMENT = Path(__file__).parents[3] / "docs" / "formats.md"


def test_the_examples_of_the_document_run(tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 3
    code = "\n".join([*blocks, "assert len(open_store('chats.arrow')) == 2"])
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=os.environ | {"HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines()[1] == "2 {} 0"
