"""Which file system a path lies on is read from the kernel's table of mounts."""

from pathlib import Path

import pytest

from dataserver.database.filesystem import mount_of, read_mounts, refuse_network_filesystem
from dataserver.errors import InvalidConfigError

TABLE = """\
21 1 254:0 / / rw,relatime - ext4 /dev/vda rw
22 21 0:21 / /proc rw,relatime shared:2 master:1 - proc proc rw
31 21 0:40 / /home rw,relatime shared:5 - nfs4 server:/home rw,vers=4.2
32 31 0:41 / /home/a\\040b rw,relatime - ext4 /dev/vdb rw
33 21 0:42 / /mnt rw,relatime - ext4 /dev/vdc rw
34 33 0:43 / /mnt rw,relatime - cifs //server/share rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/ledger.db", "ext4"),
        ("/home/ledger.db", "nfs4"),
        ("/home/a b/ledger.db", "ext4"),
        ("/homestead/ledger.db", "ext4"),
        ("/mnt/ledger.db", "cifs"),
    ],
)
def test_the_deepest_and_latest_mount_counts(path, kind):
    mount = mount_of(Path(path), read_mounts(TABLE))
    assert mount is not None
    assert mount.type == kind


def test_a_link_to_a_network_filesystem_is_followed(tmp_path, monkeypatch):
    (tmp_path / "remote").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "remote")
    table = tmp_path / "mountinfo"
    table.write_text(f"1 0 0:1 / / rw - ext4 /dev/a rw\n2 1 0:2 / {tmp_path}/remote rw - nfs server:/x rw\n")
    monkeypatch.setattr("dataserver.database.filesystem.MOUNTS", table)
    refuse_network_filesystem(tmp_path / "ledger.db", "ledger")
    with pytest.raises(InvalidConfigError, match=r"network file system \(nfs\)"):
        refuse_network_filesystem(tmp_path / "link" / "ledger.db", "ledger")


def test_without_a_table_of_mounts_nothing_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("dataserver.database.filesystem.MOUNTS", tmp_path / "nosuch")
    refuse_network_filesystem(tmp_path / "ledger.db", "ledger")
