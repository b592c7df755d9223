"""What engines are labelled with: the version that they serve, and the sync that brought it.

A version alone would not do: engines outlive runs, and the version 3 of another run is none of ours.
"""

import re

from dataserver.weight_sync import PolicyVersion

_LABEL = re.compile(r"\d{1,18}\.\d{1,18}/([0-9a-f]{32})")


def label_of(version: PolicyVersion, sync_id: str) -> str:
    """`ATTEMPT.NUMBER/SYNC_ID`."""
    return f"{version}/{sync_id}"


def sync_of(label: str | None) -> str | None:
    """The sync in a label of ours; None for any other."""
    match = _LABEL.fullmatch(label or "")
    return match and match[1]
