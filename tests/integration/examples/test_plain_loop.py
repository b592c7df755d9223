"""The example of docs/client.md, as people would run it: killed, resumed, its server restarted."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np

from dataserver.client import DataClient
from dataserver.testing import running_server, synthetic_rows, write_store

EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "plain_loop.py"
LENGTHS = [5, 64, 17, 30, 3, 48, 22, 9] * 40


# Runs a program that gets a signal once it has said the line of a step.
SIGNALLED = """
import builtins, os, runpy, sys

number, step = map(int, sys.argv[1:3])
say = builtins.print

def say_and_be_signalled(line, **options):
    say(line, **options)
    if line.startswith(f"step {step}:"):
        os.kill(os.getpid(), number)

builtins.print = say_and_be_signalled
del sys.argv[:3]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def plain_loop(endpoint, checkpoint):
    """The command that runs the example as run `r` over store `chat`."""
    return [sys.executable, EXAMPLE, endpoint, "--run", "r", "--store", "chat", "--checkpoint", checkpoint]


def signalled(command, number, step):
    """The same, with the signal of that number after that step."""
    return [sys.executable, "-c", SIGNALLED, str(int(number)), str(step), *command[1:]]


def test_the_plain_loop_counts_every_token_twice_in_two_epochs_though_it_and_its_server_die(tmp_path):
    store = write_store(tmp_path / "chat", lengths=LENGTHS)
    rows = synthetic_rows(LENGTHS, vocab_size=1000, seed=0)
    expected = 2 * np.bincount(np.concatenate([tokens for tokens, _ in rows]), minlength=1000)
    checkpoint = tmp_path / "checkpoint.json"
    with running_server({"chat": store}) as server, DataClient(server.endpoint) as client:
        command = plain_loop(server.endpoint, checkpoint)
        killed = subprocess.run(signalled(command, signal.SIGKILL, 5), stdout=subprocess.PIPE, text=True, timeout=100)
        assert killed.returncode == -signal.SIGKILL
        stopped = signalled(command, signal.SIGSTOP, 6)
        with subprocess.Popen(stopped, stdout=subprocess.PIPE, text=True) as resumed:
            first_line = resumed.stdout.readline()
            server.restart()
            os.kill(resumed.pid, signal.SIGCONT)
            output = resumed.communicate(timeout=100)[0]
        assert resumed.returncode == 0
        run = client.get_run("r")
    saved = json.loads(checkpoint.read_text())
    assert saved["weights"] == expected.tolist()
    assert first_line.startswith("step 6:")
    assert run.ended
    assert run.committed.step == run.consumed_step == int(output.splitlines()[-1].removeprefix("step ").split(":")[0])
    assert (run.committed.epoch, run.committed.position) == (2, 0)


def test_the_plain_loop_says_when_its_file_undoes_a_rewind(tmp_path):
    store = write_store(tmp_path / "chat", lengths=[5, 64, 17, 30] * 10)
    checkpoint = tmp_path / "checkpoint.json"
    with running_server({"chat": store}) as server, DataClient(server.endpoint) as client:
        command = plain_loop(server.endpoint, checkpoint)
        first = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
        last = client.get_run("r").committed.step
        client.rewind_run("r", 0)
        second = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
        assert client.get_run("r").committed.step == last > 1
    assert first.stderr == ""
    assert second.stderr.count("\n") == 1
    assert f"the ledger stood at step 0, {checkpoint} holds step {last}" in second.stderr
