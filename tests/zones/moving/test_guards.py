"""Each guard of `tests/protocol_models/move.py` in the product: a story that needs it, and fails without it.

A planted bug takes the guard away. The story then ends with a lost write, two owners, or a tenant that nobody finds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from fairlead.zones import ownership, tenant_transaction, transaction_runner
from fairlead.zones.engines import Transaction, transact
from fairlead.zones.keyspace import TenantKeys
from fairlead.zones.layout import ShardLayout, Tenant
from fairlead.zones.moving import destination, marks, mover, source
from fairlead.zones.moving.destination import Copied
from fairlead.zones.moving.errors import MoverReplaced, MoveUnderWay
from fairlead.zones.moving.move_record import move_key, request_cancel
from fairlead.zones.moving.mover import Mover
from fairlead.zones.moving.source import Mine
from fairlead.zones.records import MovePhase, MoveRecord, MoveState, OwnerRecord, decode, encode
from fairlead.zones.tenant_transaction import TenantTransaction
from tests.protocol_models.move import Guard
from tests.simulation.races.missing_guards import planted
from tests.zones.faults import Fault
from tests.zones.moving.town import Killed, Town, before

KEY = ("key",)
NOT_RETRIED = 2_200  # An error of the API that no transaction is repeated for.

Story = Callable[[Town], bool]
Plant = Callable[[pytest.MonkeyPatch], None]


def put(town: Town, value: bytes, key: tuple[Any, ...] = KEY) -> None:
    """Let a user write."""
    town.on(lambda tr: tr.set(key, value))


def has(town: Town, **data: bytes) -> bool:
    """Say whether the tenant lives on one shard, has these data and no others, and every check finds all well."""
    homes = [name for name in town.shards if lives_at(town, name)]
    if len(homes) != 1:
        return False
    try:
        return town.data() == {(key,): value for key, value in data.items()} and town.findings() == {}
    except AssertionError:  # Nobody finds it.
        return False


def lives_at(town: Town, name: str) -> bool:
    owner = town.owner(name)
    return name == "east" if owner is None else owner.shard_id == town.shards[name].layout.shard_id


def die() -> None:
    raise Killed


def run_until(town: Town, move_id: bytes, to: str, method: str, **how: Any) -> None:
    """Let a mover begin, or go on, and die before a method."""
    with suppress(Killed):
        before(town.mover(move_id, to, **how), **{method: die}).run()


def cancel(town: Town, at: str) -> None:
    """Ask for a move to be taken back."""
    transact(town.shards[at].db, lambda tr: request_cancel(tr, town.alice))


# --- Stories: whether all is well in the end ---


def a_write_that_began_before_the_move(town: Town) -> bool:
    runs: list[int] = []

    def body(tr: TenantTransaction) -> None:
        tr.set(KEY, b"1")
        if not runs:
            runs.append(1)
            town.move("north")

    town.on(body)
    return has(town, key=b"1")


def a_write_after_all_was_copied(town: Town) -> bool:
    town.mover_that("north", _hand_over=lambda: put(town, b"1")).run()
    return has(town, key=b"1")


def a_write_between_copy_and_clearing_of_its_mark(town: Town) -> bool:
    first = town.mover_that("north", _copy_changes=lambda: put(town, b"1"))
    before(first, _clear_marks=lambda: put(town, b"2")).run()
    return has(town, key=b"2")


def a_write_after_the_decision(town: Town) -> bool:
    """The mover has not said at the source that the tenant has moved."""
    town.mover_that("north", _say_moved=lambda: put(town, b"1")).run()
    return has(town, key=b"1")


def a_read_after_a_write_at_the_new_home(town: Town) -> bool:
    """A reader whose process knows the old home reads after a writer who knows the new one was answered."""
    put(town, b"1")
    seen: list[bytes | None] = []

    def write_there_and_read() -> None:
        town.alice_lives_at("north")
        put(town, b"2")
        town.alice_lives_at("east")
        seen.append(town.on(lambda tr: tr.get(KEY)))

    town.mover_that("north", _say_moved=write_there_and_read).run()
    return seen == [b"2"]


def a_mover_that_was_replaced_and_forgets_the_marks(town: Town) -> bool:
    move_id = town.begin("north")
    late = town.mover(move_id, "north")

    def replace_it_and_write() -> None:
        run_until(town, move_id, "north", "_copy_changes")
        put(town, b"1")

    before(late, _measure=replace_it_and_write).run()
    town.mover(move_id, "north").run()
    return has(town, key=b"1")


def a_mover_that_was_replaced_and_empties_the_destination(town: Town) -> bool:
    put(town, b"1")
    move_id = town.begin("north")
    late = town.mover(move_id, "north")
    before(late, _clear=lambda: run_until(town, move_id, "north", "_hand_over")).run()
    town.mover(move_id, "north").run()
    return has(town, key=b"1")


def a_chunk_of_unknown_result_that_arrives_late(town: Town) -> bool:
    put(town, b"1")
    north = town.shards["north"]
    late: list[Transaction] = []
    moving = town.mover_that("north", _copy_changes=lambda: put(town, b"2"))
    write = moving._write

    def send_twice(chunk: list[Copied]) -> None:
        if not late:
            tr = north.db.create_transaction()
            destination.write_chunk(tr, north.layout, town.alice, moving._mine, moving._chunk + 1, chunk)
            late.append(tr)
        write(chunk)

    def arrive() -> None:
        with suppress(*north.db.errors):
            late[0].commit().wait()

    moving._write = send_twice  # type: ignore[method-assign]
    moving._copy_last = lambda: write_all(moving)  # type: ignore[method-assign]
    before(moving, _own=arrive).run()
    return has(town, key=b"2")


def write_all(moving: Mover) -> list[Copied]:
    """Copy the last changes before the decision, not with it."""
    last = type(moving)._copy_last(moving)
    moving._write(last)
    return []


def a_mover_that_empties_the_destination_after_the_decision(town: Town) -> bool:
    put(town, b"1")
    move_id = town.begin("north")
    late = town.mover(move_id, "north")
    before(late, _clear=lambda: town.mover(move_id, "north").run()).run()
    return has(town, key=b"1")


def a_rescuer_before_the_decision(town: Town) -> bool:
    """A writer meets the frozen tenant for a second, and takes the move back; then its mover goes on."""
    town.mover_that("north", _own=lambda: put(town, b"1")).run()
    return has(town, key=b"1")


def a_decision_without_an_answer(town: Town) -> bool:
    """The destination owns the tenant, and does not answer any more."""
    move_id = town.begin("north")
    first = town.mover(move_id, "north")
    north = town.stores["north"]
    with suppress(*north.errors):
        before(first, _own=lambda: north.faults.append(Fault(applied=True, code=NOT_RETRIED))).run()
    put(town, b"1")
    town.mover(move_id, "north").run()
    return has(town, key=b"1")


def a_mover_that_dies_in_the_midst_of_the_decision(town: Town) -> bool:
    """It dies after the first of the two transactions that say where the tenant lives."""
    put(town, b"1")
    move_id = town.begin("north")

    def die_once_decided(name: str, _: int, after: bool) -> None:
        if after and (lives_at(town, "north") or not lives_at(town, "east")):
            die()

    town.hook = die_once_decided
    with suppress(Killed):
        town.mover(move_id, "north").run()
    town.hook = None
    town.mover(move_id, "north").run()
    return has(town, key=b"1")


def a_mover_that_clears_the_source_after_the_tenant_is_back(town: Town) -> bool:
    put(town, b"1")
    late = town.mover_that("north")
    before(late, _arrive=lambda: before(late, _clear=lambda: town.move("east"))).run()
    return has(town, key=b"1")


def a_stub_that_is_updated_after_the_next_move(town: Town) -> bool:
    """Neither shard of the two moves is the first home."""
    town.move("north")
    late = town.mover_that("west")

    def move_back_before_the_stub(name: str, _: int, after: bool) -> None:
        if name == "east" and not after and not lives_at(town, "north"):
            town.move("north")

    town.hook = move_back_before_the_stub
    late.run()
    town.hook = None
    town.forget_where_alice_lives()
    return has(town)


def a_mover_of_an_ended_move_that_opens_the_destination_anew(town: Town) -> bool:
    move_id = town.begin("north")

    def end_it_and_die_later() -> None:
        cancel(town, "east")
        town.mover(move_id, "north").run()

    late = town.mover(move_id, "north")
    with suppress(Killed):
        before(before(late, _prepare=end_it_and_die_later), _copy=die).run()
    return town.move("north") is MoveState.MOVED and has(town)


def a_mover_that_finds_what_another_one_has_copied(town: Town) -> bool:
    put(town, b"1", ("gone",))
    put(town, b"1")
    move_id = town.begin("north")
    first = town.mover(move_id, "north")
    with suppress(Killed):
        before(first, _copy_all=lambda: before(first, _look_up=die)).run()
    town.on(lambda tr: tr.clear(("gone",)))
    town.mover(move_id, "north").run()
    return has(town, key=b"1")


def a_write_at_a_shard_that_has_forgotten_the_tenant(town: Town) -> bool:
    town.move("north")
    town.move("east")
    town.alice_lives_at("north")
    put(town, b"1")
    town.forget_where_alice_lives()
    return has(town, key=b"1")


def a_write_of_unknown_result_and_a_move(town: Town) -> bool:
    town.stores["east"].faults.append(Fault(applied=True, then=lambda: town.move("north")))
    town.on(lambda tr: tr.add(KEY, 1))
    return has(town, key=(1).to_bytes(8, "little"))


def a_move_before_the_tenant_has_arrived(town: Town) -> bool:
    """The next move is refused, or it is taken back; the tenant's queue is visited where it is."""
    town.enqueue()
    run_until(town, town.begin("north"), "north", "_arrive")
    try:
        move_id = town.begin("west")
    except MoveUnderWay:
        move_id = None
    if move_id is not None:
        cancel(town, "north")
        town.mover(move_id, "west").run()
    record = town.record("east")
    assert record is not None
    town.mover(record.move_id, "north", at="east").run()
    return has(town)


def many_changes_in_the_last_moment_and_a_mover_that_dies(town: Town) -> bool:
    """More is marked while the tenant is frozen than one transaction reads, and the mover dies before it has copied."""
    move_id = town.begin("north")
    first = town.mover(move_id, "north")

    def write_and_die_later() -> None:
        for number in range(3):
            put(town, b"new", (f"key{number}",))
        before(first, _write=die)

    with suppress(Killed):
        before(first, _hand_over=write_and_die_later).run()
    town.mover(move_id, "north").run()
    return has(town, key0=b"new", key1=b"new", key2=b"new")


def a_mover_that_begins_between_close_and_thaw(town: Town) -> bool:
    """A rescuer closes the destination. A new mover takes over, and dies when it has decided. The rescuer thaws."""
    put(town, b"1")
    move_id = town.begin("north")
    run_until(town, move_id, "north", "_own")
    town.clock.advance_us(2_000_000)

    def once_closed(name: str, _: int, after: bool) -> None:
        if name == "north" and after:
            run_until(town, move_id, "north", "_say_moved")

    town.hook = once_closed
    put(town, b"2")
    town.hook = None
    town.mover(move_id, "north").run()
    return has(town, key=b"2")


def a_mover_that_takes_back_while_the_next_move_has_begun(town: Town) -> bool:
    """The tenant lives on neither its first home nor the destination; the second move is taken back, too."""
    town.move("north")
    first_move = town.begin("west")
    late = town.mover(first_move, "west")

    def end_and_begin_anew() -> None:
        town.mover(first_move, "west").run()
        run_until(town, town.begin("west"), "west", "_copy")

    cancel(town, "north")
    before(late, _close=end_and_begin_anew).run()
    cancel(town, "north")
    record = town.record("north")
    assert record is not None
    town.mover(record.move_id, "west").run()
    town.forget_where_alice_lives()
    return has(town)


# --- Planted bugs ---


def read_the_owner_by_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    check_owner = TenantTransaction._check_owner

    def planted(self: TenantTransaction, owner: Any) -> None:
        check_owner(self, self._tr.snapshot.get(self._keys.owner))

    class Blind:
        """Reads nothing with conflict."""

        def __init__(self, tr: Any) -> None:
            self._tr, self.get = tr, tr.snapshot.get

        def __getattr__(self, name: str) -> Any:
            return getattr(self._tr, name)

    init = TenantTransaction.__init__

    def blind(self: TenantTransaction, *args: Any, **named: Any) -> None:
        init(self, *args, **named)
        self._tr = Blind(self._tr)

    monkeypatch.setattr(TenantTransaction, "_check_owner", planted)
    monkeypatch.setattr(TenantTransaction, "__init__", blind)


def mark_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marks.MarkingTransaction, "_write_mark", lambda *_: None)


def clear_marks_whatever_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    def planted(tr: Transaction, copied: list[marks.Mark]) -> None:
        for mark in copied:
            tr.clear(mark.key)

    monkeypatch.setattr(mover, "clear_marks", planted)


def pass_frozen_tenants(monkeypatch: pytest.MonkeyPatch, *, reads_only: bool) -> None:
    check_owner = ownership.check_owner

    def planted(tr: Any, layout: Any, keys: Any, value: bytes | None, *, writes: bool = True) -> Any:
        owner = None if value is None else decode(OwnerRecord, value)
        is_frozen = owner is not None and owner.move is not None and owner.move.phase is MovePhase.FROZEN
        if owner is not None and is_frozen and not (writes and reads_only):
            owner.move = None
            value = encode(owner)
        return check_owner(tr, layout, keys, value, writes=writes)

    monkeypatch.setattr(tenant_transaction, "check_owner", planted)


def forget_who_the_mover_is(monkeypatch: pytest.MonkeyPatch) -> None:
    note = source.note

    def planted(tr: Transaction, tenant: Tenant, mine: Mine, **changes: Any) -> MoveRecord:
        record = source.read_move(tr, tenant)
        return note(tr, tenant, mine if record is None else mine._replace(mover=record.mover), **changes)

    monkeypatch.setattr(source, "note", planted)


def let_every_mover_in(monkeypatch: pytest.MonkeyPatch) -> None:
    def planted(owner: OwnerRecord | None, mine: Mine) -> bool:
        move = None if owner is None else owner.move
        return move is not None and move.phase is MovePhase.INCOMING and move.move_id == mine.move_id

    monkeypatch.setattr(destination, "is_incoming", planted)


def count_no_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    def planted(tr: Any, layout: Any, tenant: Tenant, mine: Mine, _: int, copied: Sequence[Copied]) -> None:
        keys = TenantKeys(*tenant)
        if not destination.is_incoming(source.read_owner(layout, keys, tr.get(keys.owner).value), mine):
            raise MoverReplaced
        destination._replace(tr, copied)

    monkeypatch.setattr(destination, "write_chunk", planted)


def take_what_comes_whenever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(destination, "is_incoming", lambda *_: True)


def thaw_without_closing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(destination, "close", lambda *_, **__: True)


def unfreeze_after_the_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Mover._own

    def planted(self: Mover, *args: Any) -> None:
        try:
            own(self, *args)
        except self._to.db.errors:
            self._in_source(lambda tr: source.unfreeze(tr, self._at.layout, self._tenant, self._mine))
            raise

    monkeypatch.setattr(Mover, "_own", planted)


def say_moved_before_the_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Mover._own

    def planted(self: Mover, *args: Any) -> None:
        self._say_moved()
        own(self, *args)

    monkeypatch.setattr(Mover, "_own", planted)


def clear_the_source_whoever_owns_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "has_moved_away", lambda *_, **__: True)


def update_the_stub_blindly(monkeypatch: pytest.MonkeyPatch) -> None:
    def planted(tr: Transaction, _: Any, tenant: Tenant, *, epoch: int, destination_id: bytes) -> None:
        source.write_owner(tr, TenantKeys(*tenant), OwnerRecord(epoch + 1, destination_id))

    monkeypatch.setattr(destination, "update_stub", planted)


def begin_in_the_same_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = source.begin

    def planted(tr: Transaction, layout: ShardLayout, tenant: Tenant, record: MoveRecord, *, now_us: int) -> None:
        begin(tr, layout, tenant, record, now_us=now_us)
        keys = TenantKeys(*tenant)
        owner = source.read_owner(layout, keys, tr.get(keys.owner).value)
        assert owner is not None
        record.epoch = owner.epoch = owner.epoch - 1
        source.write_owner(tr, keys, owner)
        tr.set(move_key(keys), encode(record))

    monkeypatch.setattr(source, "begin", planted)


def leave_the_destination_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    clear = Mover._clear

    def planted(self: Mover, shard: Any, may_clear: Any, **options: Any) -> None:
        if shard is not self._to:
            clear(self, shard, may_clear, **options)

    monkeypatch.setattr(Mover, "_clear", planted)


def write_chunks_over_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def planted(tr: Transaction, copied: Sequence[Copied]) -> None:
        for each in copied:
            for row in each.rows:
                tr.set(row.key, row.value)

    monkeypatch.setattr(destination, "_replace", planted)
    monkeypatch.setattr(mover, "first_difference", lambda *_: None)


def neither_empty_nor_replace(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_the_destination_as_it_is(monkeypatch)
    write_chunks_over_what_is_there(monkeypatch)


def live_wherever_there_is_no_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ownership, "is_first_home", lambda *_: True)


def write_no_receipts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_runner, "_write_receipt", lambda *_, **__: None)


def begin_before_it_has_arrived(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = source.begin

    def planted(tr: Transaction, layout: ShardLayout, tenant: Tenant, record: MoveRecord, *, now_us: int) -> None:
        keys = TenantKeys(*tenant)
        owner = source.read_owner(layout, keys, tr.get(keys.owner).value)
        if owner is not None and owner.move is not None and owner.move.phase is MovePhase.ARRIVING:
            owner.move = None
            source.write_owner(tr, keys, owner)
        begin(tr, layout, tenant, record, now_us=now_us)

    monkeypatch.setattr(source, "begin", planted)
    monkeypatch.setattr(destination, "POINTERS_MAX", 0)


def clear_marks_before_copying(monkeypatch: pytest.MonkeyPatch) -> None:
    def planted(self: Mover) -> list[Copied]:
        copied: list[Copied] = []
        while True:
            marks, some = self._read_marked()
            copied += some
            if not marks:
                self._write(copied)
                return []
            self._in_source(partial(self._clear_marks, marks=marks))

    monkeypatch.setattr(Mover, "_copy_last", planted)


def forget_that_it_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    close = destination.close

    def planted(tr: Transaction, layout: ShardLayout, tenant: Tenant, move_id: bytes, *, epoch: int) -> bool:
        keys = TenantKeys(*tenant)
        owner = source.read_owner(layout, keys, tr.get(keys.owner).value)
        closed = close(tr, layout, tenant, move_id, epoch=epoch)
        source_id = b"" if owner is None else owner.shard_id
        destination.forget_closed(tr, layout, tenant, move_id, epoch=epoch, source_id=source_id)
        return closed

    monkeypatch.setattr(destination, "close", planted)


def take_a_later_move_for_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def planted(_: ShardLayout, owner: OwnerRecord | None, *, epoch: int) -> bool:
        if owner is None or owner.epoch <= epoch:
            return False
        return owner.move is None or owner.move.phase is not MovePhase.INCOMING or owner.epoch > epoch + 1

    monkeypatch.setattr(destination, "owns", planted)


STORIES: dict[Guard, tuple[Story, Plant]] = {
    Guard.OWNER_READ: (a_write_that_began_before_the_move, read_the_owner_by_snapshot),
    Guard.MARKS: (a_write_after_all_was_copied, mark_nothing),
    Guard.COMPARED: (a_write_between_copy_and_clearing_of_its_mark, clear_marks_whatever_they_are),
    Guard.COPIED_FIRST: (many_changes_in_the_last_moment_and_a_mover_that_dies, clear_marks_before_copying),
    Guard.WRITERS_WAIT: (a_write_after_the_decision, partial(pass_frozen_tenants, reads_only=False)),
    Guard.READERS_WAIT: (a_read_after_a_write_at_the_new_home, partial(pass_frozen_tenants, reads_only=True)),
    Guard.MOVER_AT_SOURCE: (a_mover_that_was_replaced_and_forgets_the_marks, forget_who_the_mover_is),
    Guard.MOVER_AT_DESTINATION: (a_mover_that_was_replaced_and_empties_the_destination, let_every_mover_in),
    Guard.CHUNK: (a_chunk_of_unknown_result_that_arrives_late, count_no_chunks),
    Guard.INCOMING: (a_mover_that_empties_the_destination_after_the_decision, take_what_comes_whenever),
    Guard.CLOSED_FIRST: (a_rescuer_before_the_decision, thaw_without_closing),
    Guard.STAYS_CLOSED: (a_mover_that_begins_between_close_and_thaw, forget_that_it_is_closed),
    Guard.NOT_TRIED: (a_decision_without_an_answer, unfreeze_after_the_decision),
    Guard.OWNED_FIRST: (a_mover_that_dies_in_the_midst_of_the_decision, say_moved_before_the_decision),
    Guard.CLEARED_BY_EPOCH: (
        a_mover_that_clears_the_source_after_the_tenant_is_back,
        clear_the_source_whoever_owns_it,
    ),
    Guard.STUB_BY_EPOCH: (a_stub_that_is_updated_after_the_next_move, update_the_stub_blindly),
    Guard.EPOCH_RAISED: (a_mover_of_an_ended_move_that_opens_the_destination_anew, begin_in_the_same_epoch),
    Guard.OWNS: (a_mover_that_takes_back_while_the_next_move_has_begun, take_a_later_move_for_this_one),
    Guard.EMPTIED: (a_mover_that_finds_what_another_one_has_copied, neither_empty_nor_replace),
    Guard.ABSENT: (a_write_at_a_shard_that_has_forgotten_the_tenant, live_wherever_there_is_no_record),
    Guard.RECEIPT: (a_write_of_unknown_result_and_a_move, write_no_receipts),
    Guard.ARRIVED: (a_move_before_the_tenant_has_arrived, begin_before_it_has_arrived),
}
WITH_EMPTIED = {Guard.REPLACES: (a_mover_that_finds_what_another_one_has_copied, write_chunks_over_what_is_there)}
BY_CONSTRUCTION = {Guard.POINTER_LAST, Guard.VISIT_ASKS}  # No pointer is copied, so there is none to delete early.


def test_each_guard_has_its_story() -> None:
    assert set(STORIES) | set(WITH_EMPTIED) | BY_CONSTRUCTION == set(Guard)


@pytest.fixture(autouse=True)
def few_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a mover copy two marks at once, so that three of them need two rounds."""
    monkeypatch.setattr(mover, "MARKS_MAX", 2)


@pytest.mark.parametrize("guard", STORIES, ids=lambda guard: guard.name)
def test_with_the_guard_the_story_ends_well(guard: Guard) -> None:
    story, _ = STORIES[guard]
    assert story(Town())


@pytest.mark.parametrize("guard", STORIES, ids=lambda guard: guard.name)
def test_without_the_guard_the_story_ends_badly(guard: Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    story, plant = STORIES[guard]
    plant(monkeypatch)
    assert not story(Town())


def test_a_move_that_begins_in_the_epoch_of_the_one_before_is_taken_for_it() -> None:
    with planted("a move begins in the epoch of the one before"):
        assert not a_mover_of_an_ended_move_that_opens_the_destination_anew(Town())


@pytest.mark.parametrize("plant", [leave_the_destination_as_it_is, write_chunks_over_what_is_there])
def test_one_of_two_redundant_guards_is_enough(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    """A destination is emptied first, and a chunk replaces its range."""
    plant(monkeypatch)
    assert a_mover_that_finds_what_another_one_has_copied(Town())
