"""Where a path is mounted."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlead.zones.engines import StoreUnavailable
from fairlead.zones.engines.embedded import filesystems
from fairlead.zones.engines.embedded.filesystems import filesystem_type, may_be_shared, network_filesystem
from fairlead.zones.engines.embedded.lmdb_files import LmdbFiles

MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
23 22 0:20 / /home rw,relatime - nfs4 server:/home rw,vers=4.2
24 23 0:21 / /home/local rw - xfs /dev/sdb1 rw
25 22 0:22 / /with\\040space rw,relatime - fuse.sshfs me@there:/ rw
26 22 0:23 / /twice rw - ext4 /dev/sdc1 rw
27 22 0:24 / /twice rw - cifs //server/share rw
"""


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
def test_what_machines_may_share_is_no_place_for_a_store(kind: str) -> None:
    assert may_be_shared(kind)


@pytest.mark.parametrize("kind", ["ext4", "overlay", "tmpfs", "fuseblk", "fuse.fuse-overlayfs", "fuse.gocryptfs"])
def test_what_lies_on_a_disk_of_this_machine_is_one(kind: str) -> None:
    assert not may_be_shared(kind)


def test_a_store_on_another_machines_disk_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"1 0 0:20 / / rw - ext4 /dev/sda1 rw\n2 1 0:21 / {tmp_path} rw - nfs4 server:/ rw\n")
    monkeypatch.setattr(filesystems, "_MOUNTS", mounts)
    with pytest.raises(StoreUnavailable) as caught:
        LmdbFiles(tmp_path / "store", first_version=1)
    assert caught.value.reason == "the path is on another machine's disk"
    assert caught.value.fields["filesystem"] == "nfs4"
    assert "FoundationDB" in caught.value.remedy
    assert not (tmp_path / "store").exists()


def test_where_nobody_can_tell_the_store_is_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filesystems, "_MOUNTS", tmp_path / "missing")
    assert network_filesystem(tmp_path) is None
