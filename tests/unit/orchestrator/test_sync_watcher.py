"""The watch of a run's syncs: it lives for as long as nobody closes it."""

import asyncio
import threading
from collections.abc import Iterator

from ledgerlab import FakeLedger

from dataserver.errors import InvalidRequestError
from dataserver.weight_sync import SyncState
from orchestrator import data_server
from orchestrator.data_server import Watcher


class Refusing(FakeLedger):
    """Refuses the first watch, brings a state with the second, refuses again once it may end."""

    def __init__(self) -> None:
        super().__init__()
        self.watches = 0
        self.end = threading.Event()
        self.state = self.sync_state("chat")

    def watch_sync_state(self, run: str) -> Iterator[SyncState]:
        self.watches += 1
        if self.watches == 2:
            yield self.state
            self.end.wait()
        raise InvalidRequestError("the answer is larger than this client takes")


async def test_a_refused_watch_is_tried_again_until_it_is_closed(monkeypatch, caplog) -> None:
    monkeypatch.setattr(data_server, "RETRY_S", 0.01)
    ledger, heard = Refusing(), asyncio.Event()
    watcher = Watcher(ledger, "chat", heard.set)
    watcher.start()
    async with asyncio.timeout(30):
        await heard.wait()
    assert watcher.state == ledger.state
    assert "larger than this client takes" in caplog.text
    watcher.close()
    ledger.end.set()
    await asyncio.to_thread(watcher._thread.join, 30)
    assert not watcher._thread.is_alive()
    assert ledger.watches == 2
