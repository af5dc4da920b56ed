"""The order of writes and syncs: what is acknowledged was on the disk before.

Power loss itself is not tried here. What can be shown is what the store asks of the kernel: the pages of a commit are
written and synced, then the root that leads to them is written through to the disk, then the caller is told.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.acceptance.acknowledging import THREADS, TIMES
from tests.acceptance.allowed import WHY_NOT_TRACED
from tests.acceptance.fleets import ROOT

SCRIPT = "tests.acceptance.acknowledging"
TRACED = "trace=openat,mkdir,write,writev,pwrite64,pwritev,pwritev2,fdatasync,fsync,msync"


pytestmark = pytest.mark.skipif(bool(WHY_NOT_TRACED), reason=WHY_NOT_TRACED)


class Call(NamedTuple):
    """A system call. `begun` and `ended` are the lines of the trace; a call that is interrupted has two."""

    thread: str
    name: str
    arguments: str
    result: str
    begun: int
    ended: int

    @property
    def file(self) -> str:
        """Its first argument, a file's number."""
        return self.arguments.partition(",")[0]


class Commit(NamedTuple):
    """The calls of one commit, in order."""

    pages: list[Call]
    syncs: list[Call]
    root: Call


def trace_of(place: Path, planted: str = "") -> list[Call]:
    """Run the script in a new store below `place`, and return its system calls in the order in which they ended."""
    trace = place / "trace"
    subprocess.run(
        ["strace", "-f", "-o", str(trace), "-e", TRACED, sys.executable, "-m", SCRIPT,
         f"embedded:{place / 'new' / 'store'}", planted],
        cwd=ROOT, check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    return list(parsed(trace.read_text(errors="replace")))


def parsed(trace: str) -> Iterator[Call]:
    """Yield the calls in what `strace -f` has written."""
    unfinished: dict[str, tuple[str, str, int]] = {}
    for number, line in enumerate(trace.splitlines()):
        thread, _, rest = line.partition(" ")
        rest = rest.lstrip()
        if found := re.fullmatch(r"(\w+)\((.*) <unfinished \.\.\.>", rest):
            unfinished[thread] = found[1], found[2], number
        elif found := re.fullmatch(r"<\.\.\. (\w+) resumed>(.*)\)\s+= (.+)", rest):
            name, arguments, begun = unfinished.pop(thread)
            yield Call(thread, name, arguments + found[2], found[3], begun, number)
        elif found := re.fullmatch(r"(\w+)\((.*)\)\s+= (.+)", rest):
            yield Call(thread, found[1], found[2], found[3], number, number)


def commits_of(calls: list[Call]) -> list[Commit]:
    """Return the commits, each from its first page to its root."""
    opened = [
        call for call in calls if call.name == "openat" and '/data.mdb"' in call.arguments and call.result != "-1"
    ]
    roots = {call.result for call in opened if "O_DSYNC" in call.arguments}
    pages = {call.result for call in opened} - roots
    assert roots, "the root is not written through to the disk"
    begun: dict[str, tuple[list[Call], list[Call]]] = defaultdict(lambda: ([], []))
    commits = []
    for call in calls:
        if call.file in pages and call.name in ("write", "writev", "pwrite64", "pwritev"):
            begun[call.thread][0].append(call)
        elif call.file in pages and call.name in ("fdatasync", "fsync"):
            begun[call.thread][1].append(call)
        elif call.file in roots and call.name == "pwrite64":
            commits.append(Commit(*begun.pop(call.thread, ([], [])), call))
    return commits


def check_order(calls: list[Call]) -> list[Commit]:
    """Check that every root follows its pages onto the disk, and every acknowledgement its root; return the commits."""
    commits = commits_of(calls)
    for commit in commits:
        if commit.pages:  # The first root of a new store has none.
            last_page = max(page.ended for page in commit.pages)
            synced = [sync for sync in commit.syncs if last_page < sync.begun and sync.ended < commit.root.begun]
            assert any(sync.result == "0" for sync in synced), (
                f"a root was written before its pages were synced: {commit}"
            )
    said = {
        tuple(call.arguments.split('"')[1].removesuffix("\\n").split()): call
        for call in calls
        if call.name == "write" and call.arguments.startswith(('1, "begin', '1, "ack'))
    }
    names = [name for what, name in said if what == "ack"]
    assert len(names) == (1 + THREADS) * TIMES
    for name in names:
        begin, ack = said["begin", name], said["ack", name]
        durable = [
            commit for commit in commits
            if commit.pages and begin.ended < commit.pages[0].begun and commit.root.ended < ack.begun
        ]  # fmt: skip
        assert durable, f"{name} was acknowledged before a root was on the disk"
    return commits


def test_what_is_acknowledged_was_written_synced_and_reachable_before(tmp_path: Path) -> None:
    """One by one, and in groups."""
    commits = check_order(trace_of(tmp_path))
    making = 2  # The store, and the shard in it.
    assert len([commit for commit in commits if commit.pages]) < making + (1 + THREADS) * TIMES, "no two shared a sync"


def test_a_new_store_is_found_again_before_anything_in_it_is_acknowledged(tmp_path: Path) -> None:
    """Its name is in its directory on the disk, and so are the names of the directories that were made for it."""
    calls = trace_of(tmp_path)
    first_root = min(commit.root.begun for commit in commits_of(calls) if commit.pages)
    synced = {call.file for call in calls if call.name == "fsync" and call.result == "0" and call.ended < first_root}
    for directory in (tmp_path, tmp_path / "new", tmp_path / "new" / "store"):
        opened = {
            call.result for call in calls
            if call.name == "openat" and f'"{directory}", ' in call.arguments and call.ended < first_root
        }  # fmt: skip
        assert opened & synced, directory


@pytest.mark.parametrize("planted", ["unsynced", "early"])
def test_a_planted_acknowledgement_of_what_is_not_on_the_disk_is_found(tmp_path: Path, planted: str) -> None:
    with pytest.raises(AssertionError, match="before a root was on the disk"):
        check_order(trace_of(tmp_path, planted))


def test_a_root_that_is_written_before_its_pages_are_synced_is_found(tmp_path: Path) -> None:
    calls = trace_of(tmp_path)
    with pytest.raises(AssertionError, match="before its pages were synced"):
        check_order([call for call in calls if call.name != "fdatasync"])
