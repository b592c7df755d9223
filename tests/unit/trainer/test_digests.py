"""What is not as it was written is found, and whose it was."""

from pathlib import Path

import pytest

from trainer.digests import damage, damaged, digest_of

FILES = {0: ("__0_0.distcp", "__0_1.distcp", ".metadata"), 1: ("__1_0.distcp",), 10: ("__10_0.distcp",)}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    for names in FILES.values():
        for name in names:
            (tmp_path / name).write_bytes(name.encode() * 1000)
    (tmp_path / "trainer.json").write_text("of no rank")
    return tmp_path


def test_what_was_written_is_whole_and_each_has_its_own(directory: Path) -> None:
    digests = [digest_of(directory, writer) for writer in range(11)]
    assert damaged(directory, digests, range(11)) == []
    assert digests[2] == digests[3] != digests[1]  # of ranks that wrote nothing
    assert all(-(2**63) <= digest < 2**63 for digest in digests)
    (directory / "trainer.json").write_text("changed")
    assert damaged(directory, digests, range(11)) == []


@pytest.mark.parametrize(("writer", "name"), [(writer, name) for writer, names in FILES.items() for name in names])
def test_a_flipped_bit_and_a_file_that_is_gone_are_found_at_their_writer(
    directory: Path, writer: int, name: str
) -> None:
    digests = [digest_of(directory, writer) for writer in range(11)]
    whole = (directory / name).read_bytes()
    for at in (0, len(whole) // 2, len(whole) - 1):
        changed = bytearray(whole)
        changed[at] ^= 1
        (directory / name).write_bytes(changed)
        assert damaged(directory, digests, range(11)) == [writer]
        assert damaged(directory, digests, (each for each in range(11) if each != writer)) == []
    (directory / name).unlink()
    assert damaged(directory, digests, range(11)) == [writer]
    assert f"that rank {writer} wrote" in damage(directory, writer)
