"""Making room for a sync takes nothing away that is not a sync's, and over."""

from pathlib import Path

import pytest
import torch

from dataserver.weight_sync import PolicyVersion
from trainer.launch import World
from trainer.weights.filesystem import FilesystemTransport
from trainer.weights.folders import DirectoryFolder
from trainer.weights.outgoing import Outgoing
from trainer.weights.sync import Sync

WORLD = World(rank=0, size=1, local_rank=0, device=torch.device("cpu"), holder="test", under_torchrun=False)


def transport(root: Path, *, attempt: int, made_by: int, sync_id: str) -> FilesystemTransport:
    sync = Sync(sync_id=sync_id * 16, run="chat", attempt=attempt, version=PolicyVersion(attempt=made_by, number=5))
    outgoing = Outgoing(specs=(), weights=(), dtype=torch.float32, buckets=())
    return FilesystemTransport(sync, outgoing, WORLD, DirectoryFolder(root, sync.run))


@pytest.mark.parametrize("name", ["step-00000005-attempt-1", "1.5", "1.5-model", "1.5-" + "g" * 32, "11-" + "0" * 32])
def test_what_is_no_syncs_stays(tmp_path: Path, name: str) -> None:
    kept = tmp_path / "chat" / name
    kept.mkdir(parents=True)
    transport(tmp_path, attempt=2, made_by=2, sync_id="ab").meet()
    assert kept.is_dir()


def test_what_syncs_up_to_ones_own_attempt_left_behind_goes(tmp_path: Path) -> None:
    for attempt in (1, 2):
        transport(tmp_path, attempt=attempt, made_by=1, sync_id=f"0{attempt}").meet()
    meeting = transport(tmp_path, attempt=2, made_by=2, sync_id="ab").meet()
    assert [str(path) for path in (tmp_path / "chat").iterdir()] == [meeting.directory]


@pytest.mark.parametrize("made_by", [1, 2])
def test_whoever_was_displaced_leaves_its_successors_transfer_alone(tmp_path: Path, made_by: int) -> None:
    live = Path(transport(tmp_path, attempt=2, made_by=made_by, sync_id="ab").meet().directory)
    transport(tmp_path, attempt=1, made_by=1, sync_id="cd").meet()
    assert live.is_dir()
