"""Log lines: for people, or one JSON object a line."""

import json
import logging
import sys
import time


class JsonFormatter(logging.Formatter):
    """`time` (UTC), `level`, `logger`, `message`, and `exception` where there is one."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def format(self, record: logging.LogRecord) -> str:
        """One line of JSON."""
        milliseconds = int(record.created * 1000) % 1000
        entry = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{milliseconds:03d}Z",
            "level": record.levelname.lower(),
            "process": self._name,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


def set_up_logs(log_format: str, name: str = "server") -> None:
    """Send all logs to standard error. `name` tells the processes of one server apart."""
    handler = logging.StreamHandler(sys.stderr)
    if log_format == "json":
        handler.setFormatter(JsonFormatter(name))
    else:
        handler.setFormatter(logging.Formatter(f"%(asctime)s %(levelname)-7s {name}: %(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
