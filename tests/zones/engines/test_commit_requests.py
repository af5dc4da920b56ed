"""A commit request unpacked by another process makes the same commit as in its own process."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
from hypothesis import given

from fairlead.zones.engines.api.errors import StoreError
from fairlead.zones.engines.embedded.cross_process.commit_requests import (
    COMMITS_MAX,
    WRITES_MAX,
    commit_id_of,
    pack,
    pack_answer,
    unpack,
    unpack_answer,
)
from fairlead.zones.engines.optimistic import atomics
from fairlead.zones.engines.optimistic.commit import CommitRequest, version_stamp
from fairlead.zones.engines.optimistic.commit_log import LogEntry, ReadSet
from fairlead.zones.engines.optimistic.ranges import KEYS_END, KeySet
from fairlead.zones.engines.optimistic.writes import Mutations, Writes
from tests.clocks import ManualClock

NAME = b"batch-01"
STAMP = version_stamp(7)
STORED = {b"a": b"\x01\x00", b"c": b"\xff\xff"}

keys = st.sampled_from([b"a", b"b", b"c", b"d"])
values = st.sampled_from([b"", b"\x01\x00", b"\x02\x00"])
operations = st.lists(
    st.one_of(
        st.tuples(st.just("set"), keys, values, st.booleans()),
        st.tuples(st.just("clear"), keys, st.none(), st.booleans()),
        st.tuples(st.just("clear_range"), keys, keys, st.booleans()),
        st.tuples(
            st.sampled_from(["add", "bit_xor", "append_if_fits", "compare_and_clear"]), keys, values, st.booleans()
        ),
        st.tuples(st.just("conflict"), keys, keys, st.booleans()),
    ),
    max_size=8,
)


def written(drawn: list[tuple[str, bytes, Any, bool]]) -> Writes:
    writes = Writes()
    for name, key, other, conflicting in drawn:
        if name in ("set", "clear"):
            writes.put(key, other, conflicting=conflicting)
        elif name == "conflict":
            writes.conflicts.add_range(key, other)
        elif name != "clear_range":
            writes.update(key, getattr(atomics, name), other, conflicting=conflicting)
        elif key < other:
            writes.clear_range(key, other, conflicting=conflicting)
    return writes


def request(writes: Writes, *, reads: KeySet | None = None) -> CommitRequest:
    read_version = None if reads is None else 5
    return CommitRequest(ManualClock(), None if reads is None else ReadSet(reads), read_version, writes, [], [])


def unpacked(*requests: CommitRequest) -> list[CommitRequest]:
    batch = pack(requests, 3)
    assert batch is not None
    return unpack(NAME, batch, ManualClock())


def conflicts(writes: Writes) -> tuple[set[bytes], list[tuple[bytes, bytes]]]:
    points, ranges = writes.conflict_keys(STAMP)
    return set(points), ranges


@given(operations)
def test_writes_do_the_same_to_a_store_and_conflict_on_the_same_keys(drawn: list[tuple[str, bytes, Any, bool]]) -> None:
    writes = written(drawn)
    (arrived,) = unpacked(request(writes))
    assert arrived.writes.mutations(STORED.get, STAMP) == writes.mutations(STORED.get, STAMP)
    assert conflicts(arrived.writes) == conflicts(writes)


def test_reads_conflict_with_the_same_commits() -> None:
    (arrived,) = unpacked(request(written([("set", b"a", b"", True)]), reads=KeySet([b"p"], [(b"r", b"t")])))
    assert arrived.read_version == 5
    assert arrived.reads is not None
    for key, changed in ((b"p", True), (b"q", False), (b"s", True), (b"t", False)):
        assert arrived.reads.changed_by(LogEntry(6, (key,), ())) is changed


def test_each_commit_of_a_batch_has_a_commit_id_that_no_user_can_write() -> None:
    arrived = unpacked(request(written([])), request(written([])))
    assert [each.commit_id for each in arrived] == [commit_id_of(NAME, 0), commit_id_of(NAME, 1)]
    assert all(each.commit_id > KEYS_END and each.floor == 3 for each in arrived)


def test_a_commit_that_needs_its_versionstamp_is_not_packed() -> None:
    writes = Writes()
    writes.put_stamped_value(b"a", bytes(10) + bytes(4), conflicting=True)
    assert pack([request(writes)], 3) is None


def test_a_large_commit_is_not_packed() -> None:
    large = written([("set", bytes([number]), b"", True) for number in range(WRITES_MAX + 1)])
    assert pack([request(large)], 3) is None


def test_a_batch_has_no_more_commits_than_an_answer_can_hold() -> None:
    assert pack([request(written([]))] * COMMITS_MAX, 3) is not None
    assert pack([request(written([]))] * (COMMITS_MAX + 1), 3) is None


def test_an_answer_has_the_version_or_the_error_of_each_commit() -> None:
    requests = [request(written([("set", b"a", b"", True)])), request(written([]))]
    outcomes = unpack_answer(pack_answer([(9, Mutations([], [], [])), StoreError(1020)]), requests)
    assert outcomes[0] == (9, Mutations([], [b"a"], []))
    assert isinstance(outcomes[1], StoreError)
    assert outcomes[1].code == 1020
