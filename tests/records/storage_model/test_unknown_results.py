"""Commits of unknown result, of shards: a conditional write answers yes or no all the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fairlead.records.errors import CommitUnknown, RecordUnreadable
from fairlead.records.storage_model.record_store import BatchingStore, ConditionalWrite
from fairlead.records.stored import Versioned
from fairlead.zones.engines import StoreUnavailable, transact
from fairlead.zones.engines.api.errors import (
    CLUSTER_VERSION_CHANGED,
    KEY_TOO_LARGE,
    TRANSACTION_CANCELLED,
    TRANSACTION_TIMED_OUT,
    VALUE_TOO_LARGE,
    error_code,
)
from tests.records.storage_model.stores import PREFIX, SHARDS, Clients, Stores, over
from tests.zones.faults import Fault, FaultyDatabase

KEY = b"key"
FIRST, SECOND, THIRD = (Versioned(b"version %d" % number, b"value %d" % number) for number in (1, 2, 3))
APPLIED = pytest.mark.parametrize("applied", [True, False], ids=["applied", "not applied"])


@pytest.fixture(params=SHARDS)
def faulty(request: pytest.FixtureRequest, stores: Stores) -> FaultyDatabase:
    return FaultyDatabase(stores.database(request.param))


@pytest.fixture
def clients(faulty: FaultyDatabase) -> Clients:
    """Two clients of one shard that has the record `FIRST`."""
    made = over(faulty)
    made.one.put_if(KEY, FIRST, None)
    return made


Write = Callable[[BatchingStore], bool]
WRITES: dict[str, Write] = {
    "put": lambda store: store.put_if(KEY, SECOND, FIRST.version),
    "delete": lambda store: store.delete_if(KEY, FIRST.version),
    "batch": lambda store: store.batch([], [ConditionalWrite(KEY, SECOND, FIRST.version)]).is_written,
}
EACH_WRITE = pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)


@EACH_WRITE
@APPLIED
@pytest.mark.parametrize("times", [1, 3])
def test_a_write_of_unknown_result_is_made_once_and_says_so(
    faulty: FaultyDatabase, clients: Clients, write: Write, applied: bool, times: int
) -> None:
    faulty.faults.extend([Fault(applied=False)] * (times - 1) + [Fault(applied)])
    assert write(clients.one)
    assert clients.other.get(KEY) in (SECOND, None)


@EACH_WRITE
def test_a_write_that_another_has_overwritten_meanwhile_still_says_that_it_was_made(
    faulty: FaultyDatabase, clients: Clients, write: Write
) -> None:
    faulty.faults.append(Fault(applied=True, then=lambda: _overwrite(clients.other)))
    assert write(clients.one)
    assert clients.other.get(KEY) == THIRD


@EACH_WRITE
def test_a_write_that_was_not_made_says_no_if_another_was_first(
    faulty: FaultyDatabase, clients: Clients, write: Write
) -> None:
    """The other writes the very version that this one was to write: reading again would take it for its own."""
    faulty.faults.append(Fault(applied=False, then=lambda: clients.other.put_if(KEY, SECOND, FIRST.version)))
    assert not write(clients.one)


@EACH_WRITE
@APPLIED
@pytest.mark.parametrize("code", [TRANSACTION_TIMED_OUT, TRANSACTION_CANCELLED, CLUSTER_VERSION_CHANGED])
def test_a_write_whose_commit_may_still_happen_is_unknown_unless_its_receipt_is_there(
    faulty: FaultyDatabase, clients: Clients, write: Write, applied: bool, code: int
) -> None:
    faulty.faults.append(Fault(applied, code))
    if applied:
        assert write(clients.one)
    else:
        with pytest.raises(CommitUnknown):
            write(clients.one)


def test_a_store_on_a_failing_disk_cannot_tell(faulty: FaultyDatabase, clients: Clients) -> None:
    faulty.results_can_be_unknown = False  # As on the engines in this process, which keep no receipts.
    faulty.faults.append(Fault(applied=True))
    with pytest.raises(CommitUnknown):
        clients.one.put_if(KEY, SECOND, FIRST.version)


def test_a_condition_that_does_not_hold_commits_nothing(faulty: FaultyDatabase, clients: Clients) -> None:
    faulty.faults.append(Fault(applied=False, code=TRANSACTION_TIMED_OUT))
    assert not clients.one.put_if(KEY, THIRD, SECOND.version)
    assert len(faulty.faults) == 1


# --- What a shard refuses ---


@pytest.mark.parametrize(
    ("key", "value", "code"), [(KEY, bytes(100_000), VALUE_TOO_LARGE), (bytes(10_001), b"", KEY_TOO_LARGE)]
)
def test_what_is_too_large_for_a_shard_is_refused_by_its_code(
    clients: Clients, faulty: FaultyDatabase, key: bytes, value: bytes, code: int
) -> None:
    with pytest.raises(faulty.errors[0]) as caught:
        clients.one.put_if(key, Versioned(b"2", value), FIRST.version if key == KEY else None)
    assert error_code(caught.value) == code
    assert clients.other.get(KEY) == FIRST


@pytest.mark.parametrize("stored", [b"", b"\x00", b"\x00\x0atoo short"])
def test_a_damaged_record_is_unreadable_and_stays(clients: Clients, faulty: FaultyDatabase, stored: bytes) -> None:
    transact(faulty, lambda tr: tr.set(PREFIX + KEY, stored))
    with pytest.raises(RecordUnreadable):
        clients.one.get(KEY)
    with pytest.raises(RecordUnreadable):
        clients.one.delete_if(KEY, FIRST.version)
    with pytest.raises(RecordUnreadable):
        list(clients.one.scan(b"a", b"z"))


def test_a_read_of_a_shard_that_does_not_answer_says_so(
    clients: Clients, faulty: FaultyDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise faulty.errors[0](TRANSACTION_TIMED_OUT)

    monkeypatch.setattr(faulty, "create_transaction", fail)
    with pytest.raises(StoreUnavailable):
        clients.one.get(KEY)


def _overwrite(store: BatchingStore) -> None:
    found = store.get(KEY)
    assert store.put_if(KEY, THIRD, None if found is None else found.version)
