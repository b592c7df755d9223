"""Render SOURCE to OUT in one life after another, KILLS of which are killed at a random moment; print how many were.

Lives are forks of this process, which imported everything and started no thread: that takes longer than a life.
A life that comes to its end is compared with WHOLE, and its store removed.
"""

import filecmp
import os
import random
import select
import shutil
import signal
import sys
import time
from pathlib import Path

from transformers import AutoTokenizer  # noqa: F401 - imported once for all lives

from dataserver.render import LocalEngine
from dataserver.render.job import job_key, render_store
from dataserver.render.rows import find_input
from dataserver.render_options import RenderOptions


def begin_life(source: Path, out: Path, options: RenderOptions) -> int:
    life = os.fork()
    if life == 0:
        found = find_input(source)
        key = job_key(found, options)
        render_store(found, out, options, key=key, engine=LocalEngine(1), progress=lambda *_: None)
        os._exit(0)
    return life


def main() -> None:
    source, tokenizer, out, whole = map(Path, sys.argv[1:5])
    kills = int(sys.argv[5])
    options, draw = RenderOptions(tokenizer=tokenizer), random.Random(0)
    begun = time.monotonic()
    assert os.waitpid(begin_life(source, whole, options), 0)[1] == 0
    longest_s = time.monotonic() - begun
    killed = 0
    while killed < kills:
        life = begin_life(source, out, options)
        ended = select.poll()
        ended.register(os.pidfd_open(life), select.POLLIN)
        if not ended.poll(draw.uniform(0, longest_s) * 1000):
            os.kill(life, signal.SIGKILL)
        if os.WIFSIGNALED(os.waitpid(life, 0)[1]):
            killed += 1
        else:
            check(out, whole)
            shutil.rmtree(out)
    assert os.waitpid(begin_life(source, out, options), 0)[1] == 0
    check(out, whole)
    print(killed)


def check(out: Path, whole: Path) -> None:
    names = sorted(path.name for path in whole.iterdir())
    assert names == sorted(path.name for path in out.iterdir())
    assert filecmp.cmpfiles(whole, out, names, shallow=False) == (names, [], [])


if __name__ == "__main__":
    main()
