"""Log lines: for people, or one JSON object a line."""

import json
import logging
import sys
import time

# Messages quote what clients sent. Escaped, it can neither forge a line nor steer a terminal.
CONTROL_CHARACTERS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))}

# JSON escapes those below 32 itself.
_JSON_CONTROL_CHARACTERS = {code: f"\\u{code:04x}" for code in range(127, 160)}


class TextFormatter(logging.Formatter):
    """One line a message; a trace keeps its lines."""

    def __init__(self, name: str) -> None:
        super().__init__(f"%(asctime)s %(levelname)-7s {name}: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # the name that logging calls
        """The line, without control characters of the message."""
        record.message = record.message.translate(CONTROL_CHARACTERS)
        return super().formatMessage(record)


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
        return json.dumps(entry, ensure_ascii=False).translate(_JSON_CONTROL_CHARACTERS)


def set_up_logs(log_format: str, name: str = "server") -> None:
    """Send all logs to standard error. `name` tells the processes of one server apart."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(name) if log_format == "json" else TextFormatter(name))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
