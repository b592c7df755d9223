"""The client and the life of its process: it never keeps it from ending."""

import os
import signal
import subprocess
import sys

# A job in the background of a script ignores SIGINT, and so do its children, unless they ask for it as a terminal's do.
PRELUDE = """if True:
    import signal, sys
    signal.signal(signal.SIGINT, signal.default_int_handler)
    from dataserver.client import DataClient
    from dataserver.testing import attempt_info
    client = DataClient(sys.argv[1])
    stream = client.stream("r", attempt_info(), world_rank=0, dp_rank=0, next_step=1)
"""


def python(program: str, endpoint: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PRELUDE + program, endpoint]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def silent(connection):
    yield connection.opened()
    yield from connection.whole_step(1, 4)
    assert connection.half_closed.wait(60)


def test_a_process_that_never_closes_its_stream_ends(scripted):
    server, _ = scripted(silent)
    with python("    next(next(stream)); print('done')", server.endpoint) as process:
        out, err = process.communicate(timeout=100)
    assert (process.returncode, out, err) == (0, "done\n", "")
    assert server.connections[0].half_closed.is_set()


def test_an_error_in_the_loop_ends_the_process_with_it(scripted):
    server, _ = scripted(silent)
    with python("    for step in stream:\n        raise ZeroDivisionError('in the loop')", server.endpoint) as process:
        _, err = process.communicate(timeout=100)
    assert process.returncode == 1
    assert err.rstrip().endswith("ZeroDivisionError: in the loop")


def test_a_wait_for_data_can_be_interrupted(scripted):
    server, _ = scripted(silent)
    program = """
    with stream:
        list(next(stream))
        print("waiting", flush=True)
        next(stream)
"""
    with python(program, server.endpoint) as process:
        assert process.stdout.readline() == "waiting\n"
        os.kill(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=100)
    assert err.rstrip().endswith("KeyboardInterrupt")
    assert "Traceback" in err


def test_a_wait_for_an_absent_server_can_be_interrupted():
    program = """
    print("waiting", flush=True)
    client.list_runs()
"""
    with python(program, "127.0.0.1:1") as process:
        assert process.stdout.readline() == "waiting\n"
        os.kill(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=100)
    assert err.rstrip().endswith("KeyboardInterrupt")


def test_a_stream_refuses_to_yield_in_a_fork_what_its_process_yields_too(scripted):
    server, _ = scripted(silent)
    program = """
    import os
    from dataserver.errors import InvalidRequestError
    step = next(stream)
    next(step)
    child = os.fork()
    if child == 0:
        try:
            next(step)
        except InvalidRequestError as error:
            print(error, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    print("the other rounds:", len(list(step)))
"""
    with python(program, server.endpoint) as process:
        out, _ = process.communicate(timeout=100)
    refused, whole = out.splitlines()
    assert "is used in its fork" in refused
    assert whole == "the other rounds: 3"
