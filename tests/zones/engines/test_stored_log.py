"""The commit log as several processes see it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import lmdb
import pytest

from fairlead.zones.engines.api.errors import TRANSACTION_TOO_OLD, StoreError
from fairlead.zones.engines.embedded import stored_log
from fairlead.zones.engines.embedded.stored_log import StoredLog, start_log
from fairlead.zones.engines.optimistic.commit_log import WINDOW_US, ReadSet
from fairlead.zones.engines.optimistic.ranges import KeySet, Range
from fairlead.zones.engines.optimistic.reserved_keys import LOG_BEGIN, log_key, log_version


def append(env: lmdb.Environment, log: StoredLog, version: int, *points: bytes, ranges: Sequence[Range] = ()) -> None:
    """Commit the write of keys, or of one that is named by its version."""
    with env.begin(write=True) as txn:
        log.begin(txn)
        log.append(txn, version, points or [key(version)], list(ranges), version)
        number = txn.id()
    log.committed(number)


def key(version: int) -> bytes:
    return str(version).encode()


def reads(*versions: int) -> ReadSet:
    return ReadSet(KeySet(map(key, versions)))


def test_the_newest_version_has_the_first_key() -> None:
    versions = [0, 1, 255, 256, 2**62]
    assert sorted(map(log_key, versions)) == list(map(log_key, reversed(versions)))
    assert [log_version(log_key(version)) for version in versions] == versions
    assert all(log_key(version) > LOG_BEGIN > b"\xff" for version in versions)


def test_of_what_others_committed_only_the_newest_is_kept_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that slept through an hour of bulk loads must not hold all of it in memory at once."""
    monkeypatch.setattr(stored_log, "TAIL_POINTS_MAX", 10)
    with lmdb.open(str(tmp_path)) as env:
        with env.begin(write=True) as txn:
            start_log(txn, 100)
        theirs, mine = StoredLog(), StoredLog()
        versions = range(105, 300, 5)
        for version in versions:
            append(env, theirs, version)
        with env.begin(write=True) as txn:
            mine.begin(txn)
            assert all(mine.changed(txn, reads(version), 100) for version in versions)
            assert mine._tail_points == 10
            assert not any(mine.changed(txn, reads(version), version) for version in versions)
            assert not mine.changed(txn, reads(1), 100)


def test_writes_are_found_in_the_cached_part_and_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same answer for each key, whether its newest write is cached, was dropped, or was of a large commit."""
    monkeypatch.setattr(stored_log, "TAIL_POINTS_MAX", 5)
    monkeypatch.setattr(stored_log, "SMALL_POINTS_MAX", 2)
    with lmdb.open(str(tmp_path)) as env:
        log = StoredLog()
        with env.begin(write=True) as txn:
            start_log(txn, 100)
        append(env, log, 105, b"twice", b"early")
        append(env, log, 110, b"x", ranges=[(b"r", b"s")])
        append(env, log, 115, b"l", b"m", b"n")
        append(env, log, 120, b"twice")  # The first entry is dropped, but not its key that was written again.
        assert log._tail_floor == 105
        since_when = (100, 105, 110, 115, 120)
        newest = {b"early": 105, b"r1": 110, b"x": 110, b"m": 115, b"twice": 120, b"never": 0}
        with env.begin(write=True) as txn:
            log.begin(txn)
            for name, version in newest.items():
                changed = [log.changed(txn, ReadSet(KeySet([name])), since) for since in since_when]
                assert changed == [version > since for since in since_when], name


def test_a_clock_near_the_epoch_is_no_reason_to_fail(tmp_path: Path) -> None:
    with lmdb.open(str(tmp_path)) as env:
        log = StoredLog()
        with env.begin(write=True) as txn:
            start_log(txn, 1)
        append(env, log, WINDOW_US // 2)
        with env.begin(write=True) as txn:
            log.prune(txn, WINDOW_US)
            assert not log.changed(txn, reads(7), 1)


@pytest.mark.parametrize(
    "damage", [b"", b"\x92", b"\xc1", b"\x92\x91\xc4\x05ab\x90", b"\x91" * 5_000, b"\x93\x90\x90\x90x"]
)
def test_a_damaged_entry_makes_who_read_before_it_try_again_and_nobody_else(tmp_path: Path, damage: bytes) -> None:
    """Nobody can tell what it conflicted with; whoever reads after it need not know."""
    with lmdb.open(str(tmp_path)) as env:
        with env.begin(write=True) as txn:
            start_log(txn, 100)
        theirs, mine = StoredLog(), StoredLog()
        for version in (105, 110, 115):
            append(env, theirs, version)
        with env.begin(write=True) as txn:
            txn.put(log_key(110), damage)
        with env.begin(write=True) as txn:
            mine.begin(txn)
            for _ in range(2):
                with pytest.raises(StoreError) as refused:
                    mine.changed(txn, reads(7), 105)
                assert refused.value.code == TRANSACTION_TOO_OLD
            assert mine.changed(txn, reads(115), 110)
            assert not mine.changed(txn, reads(7), 110)
