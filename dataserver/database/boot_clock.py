"""The clock of an SQLite database: it goes on evenly, whatever is done to the host's time.

    now = anchor + seconds since the host booted

All that use the file are on one host. Whoever opens it first after a boot takes the anchor from the wall clock and
leaves it in the file, so that all have the same. A wall clock that is set while they run moves none of their leases.
"""

import logging
import time
from pathlib import Path

from sqlalchemy import Column, Connection, Float, MetaData, String, Table, delete, insert, select

log = logging.getLogger(__name__)

# Named by the kernel anew at every boot; see random(4).
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
# From here on, a difference between this clock and the host's is worth a line in the log.
TOLD_FROM_S = 60.0

_metadata = MetaData()
_clock = Table(
    "database_clock",
    _metadata,
    Column("boot_id", String(36), primary_key=True),
    Column("anchor", Float(53), nullable=False),
)


class BootClock:
    """Seconds since 1970, as of when the database was first opened since the host's boot. Call `settle` once first."""

    def __init__(self) -> None:
        self._anchor = 0.0

    def __call__(self, _connection: Connection) -> float:
        """Now."""
        return self._anchor + _since_boot()

    def settle(self, connection: Connection, name: str) -> None:
        """Read this boot's anchor, or set it, in a transaction that writes; `name` names the database in messages."""
        self._anchor = time.time() - _since_boot()
        if not BOOT_ID.exists():  # a sandbox that hides it: this process's own anchor has to do
            return
        _metadata.create_all(connection)
        boot_id = BOOT_ID.read_text().strip()
        anchor = connection.execute(select(_clock.c.anchor).where(_clock.c.boot_id == boot_id)).scalar_one_or_none()
        if anchor is None:
            connection.execute(delete(_clock))
            connection.execute(insert(_clock).values(boot_id=boot_id, anchor=self._anchor))
            return
        self._anchor = anchor
        ahead_s = time.time() - self(connection)
        if abs(ahead_s) >= TOLD_FROM_S:
            log.warning(
                "%s: the host's clock was moved by %+.0f s since the file was first opened after the boot; what is "
                "written here keeps the time of before until the next boot, so that no lease ends early or late",
                name,
                ahead_s,
            )


def _since_boot() -> float:
    """Seconds, those that the host slept among them."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
