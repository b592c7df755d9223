"""Object storage in processes that are forked: refused at once where it would wait for ever, fine where it works."""

import json
import os
import subprocess
import sys

import pytest

# Reads before or after a fork, as told, and prints what the child got.
PROGRAM = """
import json, os, signal, sys
from dataserver.errors import DataServerError
from dataserver.storage import open_storage

reads_first, options = sys.argv[1] == "before", json.loads(sys.argv[2])
storage = open_storage("s3://forks/chat", options)
if reads_first:
    storage.stat("part-0.parquet")
if os.fork() == 0:
    signal.alarm(30)
    try:
        print(storage.stat("part-0.parquet").size, flush=True)
    except DataServerError as error:
        print(error, flush=True)
    os._exit(0)
_, status = os.wait()
sys.exit(os.waitstatus_to_exitcode(status) != 0)
"""


@pytest.mark.parametrize(("when", "said"), [("before", "Start workers by 'spawn'"), ("after", "3\n")])
def test_a_forked_child_reads_or_says_why_not(s3, when: str, said: str) -> None:
    s3.put("forks", "chat/part-0.parquet", b"123")
    command = [sys.executable, "-c", PROGRAM, when, json.dumps(s3.options)]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | s3.environment)
    assert done.returncode == 0, done.stderr
    assert said in done.stdout
