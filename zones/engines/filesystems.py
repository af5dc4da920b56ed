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
        "fuse.ceph",
        "fuse.glusterfs",
        "fuse.s3fs",
        "fuse.sshfs",
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
_MOUNTS: Final = Path("/proc/self/mountinfo")


def network_filesystem(path: Path) -> str | None:
    """Return the type of the network file system that `path` lies on; None if it is local, or nobody can tell."""
    try:
        mounts = _MOUNTS.read_text(errors="surrogateescape")
    except OSError:
        return None  # Not Linux.
    kind = filesystem_type(mounts, path.resolve())
    return kind if kind in NETWORK else None


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
