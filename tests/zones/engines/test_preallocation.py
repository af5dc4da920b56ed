"""Holes in an embedded store's file are filled while the disk has space."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from fairlead.zones.engines.api.errors import StoreUnavailable
from fairlead.zones.engines.embedded.lmdb_files import LmdbFiles
from fairlead.zones.engines.embedded.preallocation import preallocate

PAGE = 4_096


def holes_of(file: Path) -> list[tuple[int, int]]:
    """Return the first and the last page of each hole."""
    found = []
    size, data = file.stat().st_size, 0
    with file.open("rb") as opened:
        while (hole := os.lseek(opened.fileno(), data, os.SEEK_HOLE)) < size:
            data = os.lseek(opened.fileno(), hole, os.SEEK_DATA)
            found.append((hole // PAGE, data // PAGE - 1))
    return found


def sparse(file: Path, pages: dict[int, bytes]) -> None:
    """Make a file that has blocks for these pages only."""
    with file.open("wb") as opened:
        for page, filling in pages.items():
            os.pwrite(opened.fileno(), filling * PAGE, page * PAGE)


def leave_unwritten_pages(files: LmdbFiles) -> None:
    """Commit transactions; the last takes pages at the end of the file for a value, and frees them."""
    for number in range(4):
        with files.begin_write() as txn:
            txn.put(b"before", bytes([number]) * PAGE)  # LMDB looks for free pages only where there were some.
    with files.begin_write() as txn:
        txn.put(b"first", bytes(20 * PAGE))
        txn.put(b"second", bytes(20 * PAGE))
        txn.delete(b"first")


def test_holes_are_filled_and_written_pages_stay(tmp_path: Path) -> None:
    file = tmp_path / "file"
    sparse(file, {0: b"a", 40: b"b", 50: b"c"})
    assert holes_of(file) == [(1, 39), (41, 49)]
    with file.open("r+b") as opened:
        preallocate(opened.fileno(), 0, 60 * PAGE)
    assert holes_of(file) == []
    written = file.read_bytes()
    assert len(written) == 60 * PAGE
    assert [written[page * PAGE : (page + 1) * PAGE] for page in (0, 40, 50)] == [b"a" * PAGE, b"b" * PAGE, b"c" * PAGE]
    assert sum(written) == PAGE * sum(b"abc")


def test_only_the_given_part_is_filled(tmp_path: Path) -> None:
    file = tmp_path / "file"
    sparse(file, {0: b"a", 40: b"b", 50: b"c"})
    with file.open("r+b") as opened:
        preallocate(opened.fileno(), 30 * PAGE, 45 * PAGE)
    assert holes_of(file) == [(1, 29), (45, 49)]


def test_a_commit_fills_the_holes_of_the_commit_before(tmp_path: Path) -> None:
    files = LmdbFiles(tmp_path, first_version=1)
    leave_unwritten_pages(files)
    assert holes_of(tmp_path / "data.mdb") != [], "what this test is about"
    with files.begin_write() as txn:
        txn.put(b"third", b"")
    assert holes_of(tmp_path / "data.mdb") == []
    files.close()


def test_a_process_that_opens_a_store_fills_the_holes_of_another_process(tmp_path: Path) -> None:
    files = LmdbFiles(tmp_path, first_version=1)
    leave_unwritten_pages(files)
    files.close()
    files = LmdbFiles(tmp_path, first_version=1)
    files.begin_write().commit()
    assert holes_of(tmp_path / "data.mdb") == []
    files.close()


def test_holes_that_a_full_disk_cannot_take_are_filled_once_it_has_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = LmdbFiles(tmp_path, first_version=1)
    leave_unwritten_pages(files)
    with monkeypatch.context() as full:
        full.setattr(os, "pwrite", _no_space)
        files.begin_write().commit()
    assert holes_of(tmp_path / "data.mdb") != []
    files.begin_write().commit()
    assert holes_of(tmp_path / "data.mdb") == []
    files.close()


def test_a_file_that_replaced_the_store_is_not_written_to(tmp_path: Path) -> None:
    """Another process may be writing to it."""
    files = LmdbFiles(tmp_path, first_version=1)
    leave_unwritten_pages(files)
    (tmp_path / "data.mdb").rename(tmp_path / "away")
    sparse(tmp_path / "data.mdb", {0: b"a", 40: b"b"})
    with pytest.raises(StoreUnavailable):
        files.begin_write()
    assert holes_of(tmp_path / "data.mdb") == [(1, 39)]
    files.close()


def _no_space(*_: object) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")
