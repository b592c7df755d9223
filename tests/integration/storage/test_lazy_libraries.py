"""A server of local stores needs no library for object storage, and starts without one."""

import subprocess
import sys
from pathlib import Path

from dataserver.testing import write_store

# Runs what follows as if none of the libraries were installed.
BARE = """
import sys
from importlib.abc import MetaPathFinder
LIBRARIES = {"obstore", "botocore", "fsspec", "huggingface_hub"}
class Absent(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in LIBRARIES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
"""

SERVES = """
from pathlib import Path
from dataserver.client import DataClient
from dataserver.testing import running_server
with running_server({"chat": Path(sys.argv[1])}) as server, DataClient(server.endpoint) as client:
    print([store.name for store in client.list_stores()])
"""

OPENS = """
from dataserver.errors import InvalidConfigError
from dataserver.storage import open_storage
for url in sys.argv[1].split():
    try:
        open_storage(url)
    except InvalidConfigError as error:
        print(error)
"""


def run_bare(program: str, argument: str) -> str:
    done = subprocess.run([sys.executable, "-c", BARE + program, argument], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_local_stores_are_served_without_any(tmp_path: Path) -> None:
    write_store(tmp_path / "chat", lengths=[4, 9])
    assert run_bare(SERVES, str(tmp_path / "chat")) == "['chat']\n"


def test_a_url_whose_library_is_missing_says_what_to_install() -> None:
    needs = {
        "s3://bucket": ("obstore", "s3"),
        "gs://bucket": ("obstore", "gs"),
        "az://box": ("obstore", "az"),
        "hf://datasets/a/b": ("huggingface_hub", "hf"),
        "memory://x": ("fsspec", "hf"),
    }
    assert run_bare(OPENS, " ".join(needs)).splitlines() == [
        f"'{url}' needs {library}: pip install 'dataserver[{extra}]'." for url, (library, extra) in needs.items()
    ]
