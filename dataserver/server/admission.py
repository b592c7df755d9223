"""What is said of each store while it is admitted, and of what came out."""

import threading
import time
from collections.abc import Callable

from dataserver.stores import Store
from dataserver.streaming.catalog import whole_figures

# A long scan shows that it lives, a short one stays quiet.
PROGRESS_EVERY_S = 2.0


class AdmissionReport:
    """Lines for people. Called from the thread that admits."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._said = time.monotonic()
        self._lock = threading.Lock()

    def progress(self, name: str, done_bytes: int, total_bytes: int) -> None:
        """Say how far the scan is, now and then."""
        with self._lock:
            now = time.monotonic()
            if now - self._said < PROGRESS_EVERY_S:
                return
            self._said = now
        share = done_bytes / total_bytes if total_bytes else 1.0
        self._say(f"store {name}: {share:.0%} of {total_bytes / 1e6:,.0f} MB read")

    def admitted(self, name: str, store: Store) -> None:
        """Say what was admitted."""
        figures = whole_figures(store)
        contents = f"{store.tokens:,} tokens, longest {store.longest_row:,}, highest token {store.max_token}, "
        if figures is None:
            contents = "admitted lazily, so how many tokens is not known yet, "
        self._say(
            f"store {name}: {store.rows:,} rows, {contents}{len(store.shards)} {store.format} files, "
            f"fingerprint {store.fingerprint}"
        )
        if figures is not None and figures.dropped:
            reasons = ", ".join(f"{rows:,} {reason}" for reason, rows in figures.dropped.items())
            self._say(f"store {name}: never served, whatever max_length is: {reasons}")
        for ignored in store.ignored:
            self._say(f"store {name}: passed over {ignored.path}: {ignored.reason}")
        for path, target in store.links:
            self._say(f"store {name}: {path} is a link out of the store, to {target}, whose rows are served")
        amplified = store.read_amplification()
        if amplified is not None:
            self._say(
                f"store {name}: its {amplified.blocks:,} blocks take {amplified.decoded_bytes / 1e6:,.0f} MB decoded "
                f"and block_cache_bytes is {amplified.cache_bytes / 1e6:,.0f} MB, so a full shuffle decodes about "
                f"{amplified.rows_per_row:,.0f} rows for each row served: use shuffle = block, write smaller "
                "row groups or uncompressed Arrow, or raise block_cache_bytes"
            )
