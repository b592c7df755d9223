"""Arguments about syncs that no state of a run could make right: `InvalidRequestError`."""

import math
import re

from dataserver.errors import InvalidRequestError
from dataserver.ledger.arguments import MAX_NAME_LENGTH, check_label, check_number
from dataserver.listening import split_address
from dataserver.weight_sync import MAX_DETAIL_LENGTH, WeightSync

# A lease is renewed while it is needed; a longer one would outlive whoever forgot it.
MAX_TTL_S = 3600.0

MAX_ENGINES = 1024

# A sync that takes longer than a month did not.
MAX_SECONDS = 2.7e6

_SYNC_ID = re.compile(r"[0-9a-f]{32}")


def check_hold(hold_id: str, ttl_s: float) -> None:
    """A hold's id and how long it lives."""
    check_label("hold_id", hold_id, MAX_NAME_LENGTH)
    _check_ttl("a hold", ttl_s)


def check_lease(holder: str, address: str, ttl_s: float) -> None:
    """Who wants to be the orchestrator, where it is reached, and for how long."""
    check_label("holder", holder, MAX_NAME_LENGTH)
    check_label("address", address, MAX_NAME_LENGTH)
    try:
        _, port = split_address(address)
    except ValueError as error:
        raise InvalidRequestError(str(error)) from error
    if not port:
        raise InvalidRequestError(f"address {address!r}: give the port that trainers call, not 0")
    _check_ttl("an orchestrator's lease", ttl_s)


def check_report(sync: WeightSync) -> None:
    """A sync that ended."""
    if not _SYNC_ID.fullmatch(sync.sync_id):
        raise InvalidRequestError(f"sync_id {sync.sync_id[:80]!r}: give 32 lower-case hexadecimal digits")
    check_number("version.attempt", sync.version.attempt, 1)
    check_number("version.number", sync.version.number, 0)
    for field in ("seconds", "stall_seconds"):
        value = getattr(sync, field)
        if not (math.isfinite(value) and 0 <= value <= MAX_SECONDS):
            raise InvalidRequestError(f"{field} = {value}: give 0 to {MAX_SECONDS:g}")
    if len(sync.engines) > MAX_ENGINES:
        raise InvalidRequestError(f"{len(sync.engines)} engines: give at most {MAX_ENGINES}")
    for engine in sync.engines:
        check_label("engine", engine, MAX_NAME_LENGTH)
    check_label("detail", sync.detail, MAX_DETAIL_LENGTH, empty=True)


def _check_ttl(what: str, ttl_s: float) -> None:
    if not (math.isfinite(ttl_s) and 0 < ttl_s <= MAX_TTL_S):
        raise InvalidRequestError(f"{what}'s ttl of {ttl_s} s is out of range: above 0, at most {MAX_TTL_S:.0f}")
