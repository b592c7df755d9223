"""On which file system a path lies: SQLite's locks and shared memory hold on local ones only."""

from dataclasses import dataclass
from pathlib import Path

from dataserver.errors import InvalidConfigError

NETWORK_FILESYSTEMS = frozenset(
    {
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "coda",
        "fuse.beegfs",
        "fuse.ceph",
        "fuse.ceph-fuse",
        "fuse.gcsfuse",
        "fuse.glusterfs",
        "fuse.goofys",
        "fuse.juicefs",
        "fuse.mount-s3",
        "fuse.rclone",
        "fuse.s3fs",
        "fuse.sshfs",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "orangefs",
        "pvfs2",
        "smb3",
        "smbfs",
        "wekafs",
    }
)

MOUNTS = Path("/proc/self/mountinfo")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """Where a file system is mounted, and its type as the kernel names it."""

    point: Path
    type: str


def read_mounts(text: str) -> list[Mount]:
    """The mounts in `text`, which is in the format of proc(5), `mountinfo`; later ones cover earlier ones."""
    mounts = []
    for line in text.splitlines():
        fields, _, rest = line.partition(" - ")
        point = fields.split(" ")[4]
        for octal, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
            point = point.replace(octal, character)
        mounts.append(Mount(point=Path(point), type=rest.split(" ")[0]))
    return mounts


def mount_of(path: Path, mounts: list[Mount]) -> Mount | None:
    """The mount that `path` (absolute, without links) lies on: the deepest, and of those the last."""
    above = [mount for mount in mounts if path.is_relative_to(mount.point)]
    return max(reversed(above), key=lambda mount: len(mount.point.parts), default=None)


def refuse_network_filesystem(path: Path, what: str) -> None:
    """Raise `InvalidConfigError` if the SQLite file `path`, which holds `what`, lies on a network file system.

    Two hosts that open it there do not see each other's locks, and the file is damaged.
    """
    if not MOUNTS.exists():  # not Linux: nothing to read it from
        return
    mount = mount_of(path.parent.resolve() / path.name, read_mounts(MOUNTS.read_text()))
    if mount is not None and mount.type in NETWORK_FILESYSTEMS:
        raise InvalidConfigError(
            f"{what} {path} lies on {mount.point}, a network file system ({mount.type}), where SQLite's locks do not "
            "hold: put the file on a local disk, or use PostgreSQL (postgresql://host/database)",
            path=str(path),
            filesystem=mount.type,
        )
