"""What an error of LMDB or of the system means for an embedded store, and its remedy."""

from __future__ import annotations

import errno
import os
import resource
import shutil
from pathlib import Path
from typing import Final

import lmdb

from fairlead.zones.engines.api.errors import StoreFull, StoreUnavailable

NEARLY_FULL_BYTES: Final = 1 << 20  # With less free space than this, a failed write counts as a full disk.

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def unavailable_error(error: Exception, store: Path, *, map_bytes: int) -> StoreUnavailable:
    """Return the error of a store for an error of LMDB or the system, with its remedy.

    `map_bytes`: the address space that the store's map takes.
    """
    number = error.errno if isinstance(error, OSError) else getattr(error, "code", 0)
    path = str(store)
    if number in _FULL or (number == errno.EIO and _is_out_of_space(store)):
        return StoreFull(path)
    if number in (errno.EROFS, errno.EACCES, errno.EPERM) or isinstance(error, lmdb.ReadonlyError):
        return StoreUnavailable(
            "the path is read-only",
            remedy="Make it writable for this user, or name another path. The kernel makes a disk with errors "
            "read-only: see its log. Nothing that was acknowledged is lost.",
            path=path,
        )
    if number in (errno.EMFILE, errno.ENFILE):
        return StoreUnavailable(
            "too many files are open",
            remedy="Raise the limit on open files (`ulimit -n`, LimitNOFILE in systemd; fs.file-max for the whole "
            "machine), or look for files that the program does not close.",
            path=path,
        )
    if number == errno.ENOMEM:
        return StoreUnavailable(
            "there is no free memory or address space",
            remedy="The file is mapped as a whole: allow the process more address space than map_bytes "
            "(`ulimit -v unlimited`), and see whether the machine, or the container, has memory left.",
            path=path,
            map_bytes=map_bytes,
        )
    if number == errno.EAGAIN:
        return StoreUnavailable(
            "a process with the same process id, in another container, has the store open",
            remedy="LMDB tells processes apart by their ids. Let the containers share one namespace of process ids: "
            "`docker run --pid=container:NAME`, `pid: service:NAME` in Compose, `shareProcessNamespace: true` in "
            "a pod of Kubernetes. Nothing was done, and nothing that was acknowledged is lost.",
            path=path,
            pid=os.getpid(),
        )
    if number in (errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.ENOENT):
        return StoreUnavailable(
            "the path cannot be created", remedy="Name another directory.", path=path, cause=str(error)
        )
    if isinstance(error, (lmdb.VersionMismatchError, lmdb.InvalidError)):
        return StoreUnavailable(
            "the path holds no store of this kind",
            remedy="Name another directory, or the version of LMDB that wrote it.",
            path=path,
            cause=str(error),
        )
    if isinstance(error, (lmdb.CorruptedError, lmdb.PageNotFoundError)):
        return StoreUnavailable("the store is damaged", remedy="Restore it from a backup.", path=path, cause=str(error))
    return StoreUnavailable(
        "the disk failed",
        remedy="See the cause, and the kernel's log: the disk may be dying.",
        path=path,
        cause=str(error),
    )


def _is_out_of_space(store: Path) -> bool:
    """Return whether the disk, or the limit on file sizes, leaves hardly any room for the store's file.

    LMDB reports a write that was cut short as EIO, as it reports a failed disk.
    """
    free_bytes = shutil.disk_usage(store).free
    size_bytes_max = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    if size_bytes_max != resource.RLIM_INFINITY:
        free_bytes = min(free_bytes, size_bytes_max - (store / "data.mdb").stat().st_size)
    return free_bytes < NEARLY_FULL_BYTES
