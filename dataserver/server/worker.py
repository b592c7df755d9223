"""A worker of a server with several processes: `python -m dataserver.server.worker NAME`.

Its standard input carries the configuration as one line of JSON, and then stays open as long as its parent lives:
end of file means that the parent is gone, and the worker drains.
"""

import contextlib
import json
import logging
import os
import signal
import sys
import threading

from dataserver.config import ServerConfig
from dataserver.errors import DataServerError
from dataserver.hosting.logs import set_up_logs
from dataserver.server.process import serve

log = logging.getLogger(__name__)

REFUSED = 2


def main() -> int:
    """Serve as a worker; return the exit status."""
    name = sys.argv[1]
    config = ServerConfig.model_validate(json.loads(sys.stdin.readline()))
    set_up_logs(config.log_format, name)
    threading.Thread(target=_end_with_parent, daemon=True, name="parent-watch").start()
    try:
        return serve(config, _tell_parent, reuse_port=True)
    except DataServerError as error:
        log.error("%s", error.message)  # noqa: TRY400 - a refusal needs no trace
        return REFUSED


def _tell_parent(line: str) -> None:
    # A parent that is gone does not listen, and the worker must come to its drain all the same.
    with contextlib.suppress(OSError):
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def _end_with_parent() -> None:
    sys.stdin.read()
    log.warning("the parent process is gone; draining")
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
