"""Which file system a path is on, and which ones a store may be on."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from fairlead.zones.engines import StoreUnavailable
from fairlead.zones.engines.embedded.filesystems import filesystem_type, may_be_shared, network_filesystem
from fairlead.zones.engines.embedded.lmdb_files import LmdbFiles

MOUNTS = [
    ("/", "ext4"),
    ("/home", "nfs4"),
    ("/home/local", "xfs"),
    ("/with space", "fuse.sshfs"),
    ("/twice", "ext4"),
    ("/twice", "cifs"),
]


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/lib", "ext4"),
        ("/home/me/data", "nfs4"),
        ("/home/local/data", "xfs"),
        ("/homework", "ext4"),
        ("/with space/data", "fuse.sshfs"),
        ("/twice/data", "cifs"),
    ],
)
def test_the_longest_and_latest_mount_decides(path: str, kind: str) -> None:
    assert filesystem_type(MOUNTS, Path(path)) == kind


@pytest.mark.parametrize(
    "kind", ["nfs4", "fuse", *map("fuse.{}".format, ("sshfs", "juicefs", "gcsfuse", "rclone", "blobfuse2", "of-2030"))]
)
def test_file_systems_that_machines_may_share_are_refused(kind: str) -> None:
    assert may_be_shared(kind)


@pytest.mark.parametrize("kind", ["ext4", "overlay", "tmpfs", "fuseblk", "fuse.fuse-overlayfs", "fuse.gocryptfs"])
def test_file_systems_on_disks_of_this_machine_are_accepted(kind: str) -> None:
    assert not may_be_shared(kind)


def list_mounts(monkeypatch: pytest.MonkeyPatch, directory: Path, *lines: str) -> None:
    """Let psutil find these lines of /proc/self/mounts."""
    (directory / "self").mkdir()
    (directory / "self" / "mounts").write_text("\n".join(lines) + "\n", encoding="utf-8")
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(directory))


def test_a_store_on_another_machines_disk_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    list_mounts(monkeypatch, tmp_path, "/dev/sda1 / ext4 rw 0 0", f"server:/ {tmp_path} nfs4 rw 0 0")
    with pytest.raises(StoreUnavailable) as caught:
        LmdbFiles(tmp_path / "store", first_version=1)
    assert caught.value.reason == "the path is on another machine's disk"
    assert caught.value.fields["filesystem"] == "nfs4"
    assert "FoundationDB" in caught.value.remedy
    assert not (tmp_path / "store").exists()


def test_the_name_of_a_mount_point_may_have_any_letters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a name was decoded wrongly, and a store on a network file system was accepted."""
    list_mounts(monkeypatch, tmp_path, "/dev/sda1 / ext4 rw 0 0", r"server:/ /größer\040als nfs4 rw 0 0")
    assert network_filesystem(Path("/größer als/data")) == "nfs4"


def test_a_store_is_accepted_if_the_system_lists_no_mounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path))
    assert network_filesystem(tmp_path) is None


def test_the_file_system_of_this_directory_is_found() -> None:
    partitions = psutil.disk_partitions(all=True)
    assert filesystem_type([(each.mountpoint, each.fstype) for each in partitions], Path.cwd()) is not None
