"""Which file system a path is on, and whether a memory-mapped store may be there."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import psutil

# Several machines can mount these. The memory maps and locks of one machine are invisible to the others.
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
# FUSE file systems are served by a program, and most of them by another machine: sshfs, s3fs, gcsfuse, juicefs, rclone.
# New ones appear every year, so all FUSE types are refused except these, which lie on disks of this machine.
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


def network_filesystem(path: Path) -> str | None:
    """Return the type of the file system of `path` if other machines may mount it.

    Returns None if the file system is local, or if this system does not list its mounts.
    """
    try:
        partitions = psutil.disk_partitions(all=True)
    except OSError:
        return None
    kind = filesystem_type([(each.mountpoint, each.fstype) for each in partitions], path.resolve())
    return kind if kind is not None and may_be_shared(kind) else None


def may_be_shared(kind: str) -> bool:
    """Return whether other machines may mount what this machine has mounted as a file system of type `kind`."""
    is_fuse = kind == "fuse" or kind.startswith("fuse.")
    return kind in NETWORK or (is_fuse and kind not in LOCAL_FUSE)


def filesystem_type(mounts: Iterable[tuple[str, str]], path: Path) -> str | None:
    """Return the type of the file system that `path` lies on; None if no mount point contains it.

    Args:
      mounts: mount points with their types, in the order of mounting.
      path: absolute, without symbolic links; need not exist.
    """
    deepest, kind = -1, None
    for mount_point, mounted_kind in mounts:
        depth = len(Path(mount_point).parts)
        # A later mount covers an earlier one on the same mount point.
        if depth >= deepest and path.is_relative_to(mount_point):
            deepest, kind = depth, mounted_kind
    return kind
