"""A process that plays a part: says its pid, and does what signals tell it.

SIGUSR1: end with 0. SIGUSR2: end with 7. SIGTERM: say so and end with 0, unless stubborn.
"""

import os
import signal
import subprocess
import sys


def say(text: str) -> None:
    os.write(1, f"{text}\n".encode())  # at once: others write to the same pipe


def told_to_end(*_: object) -> None:
    say("told to end")
    os._exit(0)


if "crashing" in sys.argv:
    say(f"crash of {os.getpid()}")
    sys.exit(3)
signal.signal(signal.SIGUSR1, lambda *_: os._exit(0))
signal.signal(signal.SIGUSR2, lambda *_: os._exit(7))
signal.signal(signal.SIGTERM, signal.SIG_IGN if "stubborn" in sys.argv else told_to_end)
if "colourful" in sys.argv:
    say("\x1b[1;31mred\x1b[0m and \x1b]0;title\x07plain\r50 %\r100 %")
if "parent" in sys.argv:  # of a child that leaves session and group, and whose own child goes on
    hidden = ["sh", "-c", "sleep 1000 & echo child $!; echo child $$; wait"]
    subprocess.Popen(hidden, start_new_session=True)
say(f"pid {os.getpid()}")
while True:
    signal.pause()
