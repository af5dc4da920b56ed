"""Records of tenants that are restored to snapshots: found by the keys that they state, under the indexes of today."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from random import Random
from typing import Any

import pytest

from fairlead import App, BadArgument, Restoring
from fairlead.record_repairs import SharedValue
from fairlead.record_type import Records
from fairlead.records.alternate_keys import Field, pack_unique
from fairlead.records.definition import has_types
from fairlead.records.errors import Changed, IndexUnavailable, Interrupted, RecordUnreadable, Taken
from fairlead.records.on_shards.building import Builder, ChangeHeldUp
from fairlead.records.on_shards.repairing import RESTORED_KIND
from fairlead.records.on_shards.restored import mark_restored
from fairlead.records.on_shards.scatter import Scatter
from fairlead.records.on_shards.slots import DATA, SLOTS_APP
from fairlead.records.on_shards.violations import ViolationEntry
from fairlead.records.protocol import Protocol
from fairlead.snapshots import Snapshot
from fairlead.testing import ManualClock, drain
from fairlead.zones import tuples
from fairlead.zones.keyspace import TenantKeys
from fairlead.zones.layout import Tenant
from fairlead.zones.local_index import find_op
from fairlead.zones.pipelining import run_one
from fairlead.zones.snapshots.restoring import begin_restore
from tests.fairlead.records_on_shards import found, on_three_shards
from tests.simulation.races.missing_guards import planted

Data = dict[str, Any]


@pytest.fixture
def app() -> Iterator[App]:
    with on_three_shards() as made:
        yield made


@pytest.fixture
def carts(app: App) -> Records[Data]:
    """The carts of alice and bob, each in the tenant of its user."""
    made = app.records("cart", unique=("code",), tenant=lambda key: f"shop/{key}")
    made.create("alice", {"code": "A", "phone": "07"})
    made.create("bob", {"code": "B", "phone": "08"})
    return made


def built(app: App, carts: Records[Data], name: str = "phone", **options: Any) -> None:
    """Build an index to its end."""
    carts.add_index(name, **options)
    drain(app)


def restored(app: App, snapshot: Snapshot) -> None:
    """Restore alice, and do what a fleet does then."""
    app.tenant("shop/alice").restore(snapshot)
    drain(app)


def begun(app: App) -> Callable[[], None]:
    """Begin to restore alice, and leave it at that; return what ends the restore."""
    alice = app.tenant("shop/alice")
    snapshot, shard, keys = alice.snapshot(), alice.find(), TenantKeys(*alice.tenant)
    shard.transact(
        lambda attempt: begin_restore(attempt.tr, shard.layout, keys, snapshot.number, now_us=attempt.now_us)
    )
    return lambda: restored(app, snapshot)


def listed(app: App) -> set[tuple[str, bytes]]:
    """Return what the shards' own indexes say of alice: the shard, and the index."""
    entries: set[tuple[str, bytes]] = set()
    for shard in app.shards.values():
        page = shard.transact(lambda attempt: run_one(find_op(attempt.tr, b"", entries_max=999, longer=True)))
        entries |= {(shard.name, each.index_key) for each in page.entries if each.tenant == Tenant("shop", "alice")}
    return entries


# --- Indexes that have changed since the snapshot ---


def test_a_restored_record_is_found_by_an_index_that_was_built_since(app: App, carts: Records[Data]) -> None:
    """Before, it came back without the key, and nobody gave it one: another record could take the value."""
    snapshot = app.tenant("shop/alice").snapshot()
    built(app, carts, unique=True)
    restored(app, snapshot)
    assert found(carts.find(phone="07")).key == "alice"
    assert carts.marked() == 0


def test_a_restored_record_shares_a_value_that_another_has_taken_since(app: App, carts: Records[Data]) -> None:
    snapshot = app.tenant("shop/alice").snapshot()
    built(app, carts, unique=True)
    carts.change("alice", lambda value: {**value, "phone": "09"})
    carts.change("bob", lambda value: {**value, "phone": "07"})
    restored(app, snapshot)
    assert carts.shared_values() == [SharedValue("phone", "07", ("alice", "bob"))]
    assert carts.resolve(phone="07", keep="alice") == carts.find(phone="07")


def test_a_restored_record_has_no_key_of_an_index_that_was_dropped_since(app: App, carts: Records[Data]) -> None:
    built(app, carts, unique=True)
    snapshot = app.tenant("shop/alice").snapshot()
    carts.drop_index("phone")
    drain(app)
    restored(app, snapshot)
    assert len(found(carts.get("alice")).stored.keys) == 1
    built(app, carts, unique=True)
    assert found(carts.find(phone="07")).key == "alice"


def test_a_restored_record_is_found_by_an_index_that_compares_in_another_way_since(
    app: App, carts: Records[Data]
) -> None:
    built(app, carts, unique=True)
    snapshot = app.tenant("shop/alice").snapshot()
    carts.drop_index("phone")
    drain(app)
    built(app, carts)
    restored(app, snapshot)
    assert [each.key for each in carts.find_all(phone="07")] == ["alice"]


def test_a_restored_record_has_its_keys_until_their_index_is_dropped(app: App, carts: Records[Data]) -> None:
    """A drop that has begun knows where the field is in a value, as the build did."""
    alice = app.tenant("shop/alice")
    snapshot = alice.snapshot()
    built(app, carts, unique=True)
    carts.drop_index("phone")
    alice.restore(snapshot)
    mark_restored(app.shards, alice.find(), alice.tenant)
    assert len(found(carts.get("alice")).stored.keys) == 2
    drain(app)
    assert len(found(carts.get("alice")).stored.keys) == 1


def test_a_restored_value_that_cannot_be_a_key_gives_its_record_none(app: App, carts: Records[Data]) -> None:
    carts.change("alice", lambda value: {**value, "phone": [1, 2]})
    snapshot = app.tenant("shop/alice").snapshot()
    carts.change("alice", lambda value: {**value, "phone": "07"})
    built(app, carts, unique=True)
    restored(app, snapshot)
    assert found(carts.find(code="A")).value["phone"] == [1, 2]


def test_a_scrub_before_the_records_are_marked_leaves_a_shared_value_to_both(app: App, carts: Records[Data]) -> None:
    """Before, the restored record lost the value, and the mark that followed did not give it back."""
    alice = app.tenant("shop/alice")
    snapshot = alice.snapshot()
    carts.change("alice", lambda value: {**value, "code": "C"})
    carts.change("bob", lambda value: {**value, "code": "A"})
    alice.restore(snapshot)
    carts.scrub(repair=True)
    drain(app)
    assert carts.shared_values() == [SharedValue("code", "A", ("alice", "bob"))]
    carts.delete(found(carts.get("bob")))
    assert carts.resolve(code="A", keep="alice") == carts.find(code="A")


# --- A record that cannot be marked ---


@pytest.mark.parametrize("value", [b"\x01garbage", bytes([99]) + b"newer"])
def test_a_restored_record_that_cannot_be_read_holds_up_no_other_one(app: App, value: bytes) -> None:
    """Before, all records after it were missed by `find`, for as long as it could not be read."""
    carts = app.records("cart", unique=("code",), tenant=lambda key: "shop/alice")
    for key in ("a", "b", "c"):
        carts.create(key, {"code": key.upper()})
    alice = app.tenant("shop/alice")
    snapshot = alice.snapshot()
    carts.delete(found(carts.get("c")))
    drain(app)
    row = TenantKeys(*alice.tenant).data + tuples.pack((SLOTS_APP, "cart", DATA, "b"))
    alice.find().transact(lambda attempt: attempt.tr.set(row, value))
    alice.restore(snapshot)
    with pytest.raises(RecordUnreadable):
        mark_restored(app.shards, alice.find(), alice.tenant)
    drain(app, raise_errors=False, within=60)
    assert found(carts.find(code="C")).key == "c"


def test_a_restored_record_that_changes_is_tried_again_without_those_before_it(
    app: App, carts: Records[Data], monkeypatch: pytest.MonkeyPatch
) -> None:
    alice = app.tenant("shop/alice")
    alice.restore(alice.snapshot())
    mark, tries = Protocol.mark_op, []

    def interrupted_twice(*arguments: Any) -> Any:
        tries.append(1)
        if len(tries) < 3:
            raise Interrupted(key="alice")
        return mark(*arguments)

    monkeypatch.setattr(Protocol, "mark_op", interrupted_twice)
    mark_restored(app.shards, alice.find(), alice.tenant)
    assert len(tries) == 3


# --- A record that was read before the restore ---


def writes_what_it_read_before_a_restore(app: App, carts: Records[Data]) -> None:
    """Update a record by what was read of its second version; it was restored to the first, and has another second."""
    alice = app.tenant("shop/alice")
    snapshot = alice.snapshot()
    carts.change("alice", lambda value: {**value, "phone": "before"})
    read = found(carts.get("alice"))
    alice.restore(snapshot)
    carts.change("alice", lambda value: {**value, "phone": "after"})
    carts.update(read, {**read.value, "note": "old"})


def test_a_write_of_what_was_read_before_a_restore_is_refused_although_the_version_is_the_same(
    app: App, carts: Records[Data]
) -> None:
    """Seed 30001035. Before, what was written after the restore was lost."""
    with pytest.raises(Changed):
        writes_what_it_read_before_a_restore(app, carts)
    assert found(carts.get("alice")).value["phone"] == "after"


def test_if_only_versions_are_compared_what_was_written_after_the_restore_is_lost(
    app: App, carts: Records[Data]
) -> None:
    with (
        planted("a record of the same version is taken for the same record"),
        planted("a record that users have written as often is taken for the same record"),
    ):
        writes_what_it_read_before_a_restore(app, carts)
    assert found(carts.get("alice")).value["phone"] == "before"


# --- A shard that stores no type of records ---


def restores_on_a_shard_without_types(app: App, carts: Records[Data], *, is_there: bool) -> None:
    """Restore alice where no type of records is stored. `is_there`: her cart is there then, with another code."""
    alice = app.tenant("shop/alice")
    snapshot = alice.snapshot()
    if is_there:
        carts.change("alice", lambda value: {**value, "code": "C"})
    else:
        carts.delete(found(carts.get("alice")))
    to = next(each.name for each in app.shards.values() if not each.transact(lambda attempt: has_types(attempt.tr)))
    app.move("shop/alice", to=to)
    drain(app, within=60)
    assert alice.find().name == to
    restored(app, snapshot)


@pytest.mark.parametrize("is_there", [True, False])
def test_a_tenant_that_has_moved_to_a_shard_without_types_is_restored_with_its_records(
    app: App, carts: Records[Data], *, is_there: bool
) -> None:
    """Before, no item marked them: find missed a record that came back, until a scrub."""
    restores_on_a_shard_without_types(app, carts, is_there=is_there)
    assert found(carts.find(code="A")).key == "alice"
    assert carts.find(code="C") is None
    assert carts.marked() == 0


@pytest.mark.parametrize(
    ("guard", "is_there"),
    [
        ("a restore has records marked only where a type of records is stored", True),
        ("a restore has no records marked that were deleted since the snapshot", False),
    ],
)
def test_without_a_look_at_the_tenant_a_restored_record_is_not_found(
    app: App, carts: Records[Data], guard: str, *, is_there: bool
) -> None:
    with planted(guard):
        restores_on_a_shard_without_types(app, carts, is_there=is_there)
    assert carts.get("alice") is not None
    assert carts.find(code="A") is None


def test_a_restore_of_a_tenant_without_records_enqueues_nothing_on_a_shard_without_types(app: App) -> None:
    alice = app.tenant("shop/alice")
    alice.restore(alice.snapshot())
    assert alice.peek() == []


# --- The shards' own indexes ---


def test_a_restore_leaves_no_entry_of_what_a_record_was_before_it(app: App, carts: Records[Data]) -> None:
    alice = app.tenant("shop/alice")
    before, snapshot = listed(app), alice.snapshot()
    carts.change("alice", lambda value: {**value, "code": "another"})
    alice.enqueue("mail", keys={"order": 7}, delay=600)
    with_item = listed(app)
    restored(app, snapshot)
    assert listed(app) - before == with_item - before - {each for each in with_item if b"another" in each[1]}
    assert [each.view.kind for each in app.find_items(order=7)] == ["mail"], "an entry of an item stays"


def test_a_restore_leaves_no_entry_of_a_record_that_is_gone_by_it(app: App, carts: Records[Data]) -> None:
    alice = app.tenant("shop/alice")
    carts.delete(found(carts.get("alice")))
    snapshot = alice.snapshot()
    assert listed(app) == set()
    carts.create("alice", {"code": "A"})
    restored(app, snapshot)
    assert listed(app) == set()


def test_a_restore_ends_a_violation_of_a_value_that_the_record_does_not_state_any_more(
    app: App, carts: Records[Data]
) -> None:
    snapshots = {user: app.tenant("shop", user).snapshot() for user in ("alice", "bob")}
    for user in snapshots:
        carts.change(user, lambda value: {**value, "phone": "same"})
    built(app, carts, unique=True)
    (violation,) = carts.violations()
    app.tenant("shop", violation.key).restore(snapshots[violation.key])
    drain(app)
    assert carts.violations() == []
    built(app, carts, unique=True)
    assert {found(carts.find(phone=each)).key for each in ("same", "07", "08") if carts.find(phone=each)} == {
        *snapshots
    }


def restored_while_a_build_looks(app: App, carts: Records[Data]) -> None:
    """Build an index of phones, of which both carts have one. Then let the build look at what it has listed again.

    Between its list and its look the record is restored, and marked.
    """
    for user in ("alice", "bob"):
        carts.change(user, lambda value: {**value, "phone": "same"})
    built(app, carts, unique=True)
    (violation,) = carts.violations()
    tenant = app.tenant("shop", violation.key)
    snapshot, read = tenant.snapshot(), Builder._read

    def restore_first(self: Builder, entry: ViolationEntry) -> Any:
        tenant.restore(snapshot)
        mark_restored(app.shards, tenant.find(), tenant.tenant)
        (item,) = (each for each in tenant.peek() if each.kind == RESTORED_KIND)
        tenant.cancel(item.id)
        return read(self, entry)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Builder, "_read", restore_first)
        built(app, carts, unique=True)


def test_a_restored_record_is_listed_though_a_build_looks_at_it_meanwhile(app: App, carts: Records[Data]) -> None:
    """Before, the build took the key away that the restore had given, and nobody listed the record any more."""
    restored_while_a_build_looks(app, carts)
    assert carts.shared_values() == [SharedValue("phone", "same", ("alice", "bob"))]


def test_without_its_guard_a_build_takes_the_key_of_a_restored_record_away(app: App, carts: Records[Data]) -> None:
    with planted("a build takes a key away that a repair is to index"):
        restored_while_a_build_looks(app, carts)
        built(app, carts, unique=True)
    assert carts.find(phone="same") is not None, "the index is readable, although a record is not in it"
    assert (carts.violations(), carts.shared_values()) == ([], [])


# --- Slots ---


@pytest.mark.parametrize("user", ["cart:0a3", "cart"])
def test_a_slot_is_not_restored_by_itself(app: App, user: str) -> None:
    """Its index records would be those of another time than the records that they name, which lie elsewhere."""
    slot = app.tenant(SLOTS_APP, user)
    with pytest.raises(BadArgument, match="records"):
        slot.snapshot()
    with pytest.raises(BadArgument, match="records"):
        slot.restore(slot.transact(lambda tr: tr.snapshot()))


# --- While a tenant is being restored ---


@pytest.fixture
def restoring(app: App, carts: Records[Data]) -> Callable[[], None]:
    """Begin to restore alice, and leave it at that; return what ends the restore."""
    return begun(app)


Call = Callable[[Records[Data]], object]


@pytest.mark.parametrize(
    "call",
    [
        lambda carts: carts.find(code="A"),
        lambda carts: carts.delete(code="A"),
        lambda carts: carts.create("eve", {"code": "A"}),
        lambda carts: carts.change("bob", lambda value: {**value, "code": "A"}),
    ],
    ids=["find", "delete", "create", "change"],
)
def test_a_value_of_a_record_that_is_being_restored_does_not_answer_and_whose_it_is_is_not_said(
    app: App, carts: Records[Data], restoring: Callable[[], None], call: Call
) -> None:
    with pytest.raises(IndexUnavailable, match="being restored") as unavailable:
        call(carts)
    assert "alice" not in str(unavailable.value)
    assert carts.get("eve") is None
    restoring()
    assert found(carts.find(code="A")).key == "alice"
    assert found(carts.find(code="B")).key == "bob"


@pytest.mark.parametrize("call", [lambda carts: carts.get("alice"), lambda carts: carts.create("alice", {"code": "C"})])
def test_who_names_a_record_that_is_being_restored_by_its_key_is_told_so(
    carts: Records[Data], restoring: Callable[[], None], call: Call
) -> None:
    with pytest.raises(Restoring, match="alice"):
        call(carts)


def test_a_scrub_names_the_tenant_that_is_being_restored_and_finds_nothing_afterwards(
    carts: Records[Data], restoring: Callable[[], None]
) -> None:
    with pytest.raises(Restoring, match="alice"):
        carts.scrub(repair=True)
    restoring()
    assert not any(each.faults for each in carts.scrub())


def test_records_are_listed_again_once_one_of_them_is_restored(app: App) -> None:
    carts = app.records("cart", unique=("code",), lookup=("city",), tenant=lambda key: f"shop/{key}")
    for key in ("alice", "bob"):
        carts.create(key, {"city": "Ulm"})
    end = begun(app)
    with pytest.raises(IndexUnavailable, match="being restored"):
        carts.find_all(city="Ulm")
    end()
    assert [each.key for each in carts.find_all(city="Ulm")] == ["alice", "bob"]


def test_a_build_is_held_up_by_a_tenant_that_is_being_restored_and_names_it(app: App, carts: Records[Data]) -> None:
    end = begun(app)
    change = carts.add_index("phone", unique=True)
    outcome = drain(app, raise_errors=False)
    assert isinstance(outcome.errors[0], ChangeHeldUp)
    assert "alice" in str(outcome.errors[0])
    end()
    drain(app, within=10)
    assert change.result(timeout=0).state == "readable"
    assert found(carts.find(phone="07")).key == "alice"


def test_a_value_is_taken_on_one_shard_as_on_several_while_its_record_is_being_restored() -> None:
    """There a write meets the other tenant in its own transaction."""
    with closing(App("memory:", clock=ManualClock(), random=Random(7))) as app:
        carts = app.records("cart", unique=("code",), tenant=lambda key: f"shop/{key}")
        carts.create("alice", {"code": "A"})
        begun(app)
        with pytest.raises(IndexUnavailable, match="being restored"):
            carts.create("bob", {"code": "A"})
        assert carts.create("bob", {"code": "B"}).version == 1
        assert carts.get("bob") == carts.find(code="B")


def test_records_that_are_to_be_repaired_are_written_while_another_is_being_restored(
    app: App, carts: Records[Data], restoring: Callable[[], None]
) -> None:
    lax = app.records("cart", unique=("code",), tenant=lambda key: f"shop/{key}", repair=True)
    lax.create("eve", {"code": "A"})
    restoring()
    assert lax.shared_values() == [SharedValue("code", "A", ("alice", "eve"))]


def test_a_lookup_that_asks_all_shards_does_not_name_who_is_being_restored(
    app: App, carts: Records[Data], restoring: Callable[[], None]
) -> None:
    scatter = Scatter(app.shards, carts.locations, lambda calls: [call() for call in calls])
    with pytest.raises(IndexUnavailable, match="being restored"):
        scatter.find(pack_unique(Field("code", is_unique=True), "A"))


def test_a_unique_key_of_an_item_answers_while_its_tenant_is_being_restored(app: App) -> None:
    """A restore touches no queue."""
    bob = app.tenant("shop/bob")
    app.tenant("shop/alice").enqueue("report", unique_key="2026-11")
    end = begun(app)
    with pytest.raises(Taken):
        bob.enqueue("report", unique_key="2026-11")
    end()
    with pytest.raises(Taken):
        bob.enqueue("report", unique_key="2026-11")
