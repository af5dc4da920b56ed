"""Which file system a path is on, and whether a memory-mapped store may live there."""

from __future__ import annotations

from pathlib import Path
from typing import Final

# Memory maps and locks of one machine are not seen by the others that mount these.
NETWORK: Final = frozenset(
    {
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "coda",
        "gfs2",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "ocfs2",
        "orangefs",
        "panfs",
        "pvfs2",
        "smb2",
        "smb3",
        "smbfs",
        "virtiofs",
    }
)
# A program serves these (FUSE), most of them from other machines: sshfs, s3fs, gcsfuse, juicefs, rclone, glusterfs, ...
# New ones come every year, so all are refused but those that are known to lie on disks of this machine.
LOCAL_FUSE: Final = frozenset(
    {
        "fuse.bindfs",
        "fuse.cryfs",
        "fuse.encfs",
        "fuse.exfat",
        "fuse.fuse-overlayfs",
        "fuse.fuse2fs",
        "fuse.gocryptfs",
        "fuse.mergerfs",
        "fuse.ntfs-3g",
        "fuse.zfs",
    }
)
_MOUNTS: Final = Path("/proc/self/mountinfo")


def network_filesystem(path: Path) -> str | None:
    """Return the type of the file system of `path` if other machines may mount it; None if not, or nobody can tell."""
    try:
        mounts = _MOUNTS.read_text(errors="surrogateescape")
    except OSError:
        return None  # Not Linux.
    kind = filesystem_type(mounts, path.resolve())
    return kind if kind is not None and may_be_shared(kind) else None


def may_be_shared(kind: str) -> bool:
    """Whether other machines may mount what this one has mounted as a file system of this type."""
    is_served_by_a_program = kind == "fuse" or kind.startswith("fuse.")
    return kind in NETWORK or (is_served_by_a_program and kind not in LOCAL_FUSE)


def filesystem_type(mounts: str, path: Path) -> str | None:
    """Return the type of the file system that `path` lies on, given the text of Linux's `mountinfo`.

    Args:
      mounts: lines of `id parent device root mountpoint options ... - type source options` (proc(5)).
      path: absolute, without symbolic links; need not exist.
    """
    best, kind = -1, None
    for line in mounts.splitlines():
        before, dash, after = line.partition(" - ")
        fields = before.split()
        if not dash or len(fields) < 5:
            continue
        point = Path(fields[4].encode().decode("unicode_escape", errors="surrogateescape"))
        # Later lines cover earlier ones on the same mount point.
        if len(point.parts) >= best and path.is_relative_to(point):
            best, kind = len(point.parts), after.split()[0]
    return kind
