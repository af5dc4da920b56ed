"""Movers that come late, or whose stores refuse, and commits of movers that arrive late."""

from __future__ import annotations

from contextlib import suppress

import pytest

from fairlead.zones.engines import StoreError, Transaction, transact
from fairlead.zones.engines.api.errors import IO_ERROR, NOT_COMMITTED
from fairlead.zones.keyspace import TenantKeys
from fairlead.zones.layout import Tenant
from fairlead.zones.moving import source
from fairlead.zones.moving.errors import MoveHeldUp
from fairlead.zones.moving.move_record import move_key
from fairlead.zones.moving.rescue import end_frozen_move
from fairlead.zones.moving.source import write_owner
from fairlead.zones.records import FORMAT, MovePhase, MoveRecord, MoveState, OwnerRecord, decode, encode
from tests.simulation.races.missing_guards import planted
from tests.zones.moving.test_claims import claim
from tests.zones.moving.test_guards import cancel, die, has, put, run_until
from tests.zones.moving.town import Killed, Town, before


def test_a_mover_of_a_decided_move_ends_it_after_the_tenant_is_back() -> None:
    """The destination has forgotten the tenant, so nothing there says any more that the move was decided."""
    town = Town()
    move_id = town.begin("north")
    first = town.mover(move_id, "north")
    with suppress(Killed):
        before(first, _arrive=lambda: before(first, _note=die)).run()
    assert town.move("east") is MoveState.MOVED
    assert town.mover(move_id, "north", at="east").run() is MoveState.MOVED
    assert town.owner("north") is None
    assert town.findings() == {}


def stub_after_a_mover_that_finds_its_move_ended() -> OwnerRecord | None:
    """Return what the first home says, if the next move begins while a mover finds that its own move has ended."""
    town = Town()
    assert town.move("north") is MoveState.MOVED
    back = town.begin("east")
    cancel(town, "north")
    run_until(town, back, "east", "_clear_closed", at="north")
    before(town.mover(back, "east", at="north"), _ended_by_others=lambda: town.begin("east")).run()
    stub = town.owner("east")
    assert stub is None or stub.shard_id == town.shards["north"].layout.shard_id
    return stub


def test_a_mover_that_finds_its_move_ended_leaves_the_first_home_a_stub_although_a_later_move_begins() -> None:
    """Before, it cleared the stub: it did not know in which epoch its move had begun, and the tenant had two homes."""
    assert stub_after_a_mover_that_finds_its_move_ended() is not None


def test_without_its_epoch_such_a_mover_clears_the_stub() -> None:
    with planted("a mover of an ended move does not know its epoch"):
        assert stub_after_a_mover_that_finds_its_move_ended() is None


def begins_while_a_begin_is_held_up(town: Town) -> tuple[Transaction, bytes]:
    """Let a begin of another tenant's move forget Alice's ended move; she begins to move again before it commits.

    Return that begin, and the id of her move.
    """
    east, bob = town.shards["east"], Tenant("shop", "bob")
    assert town.move("north") is MoveState.MOVED
    assert town.move("east") is MoveState.MOVED
    town.clock.advance_us(source.KEPT_US)
    late = east.db.create_transaction()
    wanted = MoveRecord(b"m" * 16, 0, "north", town.shards["north"].layout.shard_id, town.clock.now_us(), 1_000)
    write_owner(late, TenantKeys(*bob), OwnerRecord(0, east.layout.shard_id))
    source.begin(late, east.layout, bob, wanted, now_us=town.clock.now_us())
    return late, town.begin("north")


def test_a_begin_that_is_held_up_does_not_forget_a_move_that_has_begun_since() -> None:
    """Before, it cleared the record of the later move: that tenant moved for ever, and nobody could end it."""
    town = Town()
    late, move_id = begins_while_a_begin_is_held_up(town)
    with pytest.raises(StoreError) as refused:
        late.commit().wait()
    assert refused.value.code == NOT_COMMITTED
    assert town.mover(move_id, "north").run() is MoveState.MOVED
    assert town.findings() == {}


def test_without_that_conflict_the_record_of_the_move_that_has_begun_is_lost() -> None:
    town = Town()
    with planted("a begin of a move forgets an ended move that has begun again"):
        late, _ = begins_while_a_begin_is_held_up(town)
    late.commit().wait()
    assert town.record("east") is None


class OtherEnginesError(Exception):
    """What another engine raises."""


def test_a_source_of_another_engine_that_refuses_the_last_reads_lets_transactions_go_on() -> None:
    """Before, the tenant stayed frozen until somebody had waited for a second: its mover knew one engine's errors."""
    town = Town()
    town.stores["north"].errors = (OtherEnginesError,)

    def refuse() -> None:
        raise StoreError(IO_ERROR)

    with pytest.raises(StoreError):
        town.mover_that("north", _copy_last=refuse).run()
    owner = town.owner("east")
    assert owner is not None
    assert owner.move is not None
    assert owner.move.phase is MovePhase.MOVING


def test_a_mover_that_forgets_all_marks_forgets_no_later_one_by_a_commit_that_arrives_late() -> None:
    """The result of the commit is unknown, so the mover tries again, and copies the tenant meanwhile."""
    town = Town()
    put(town, b"1")
    moving, east = town.mover_that("north"), town.shards["east"]
    forget, late = moving._forget_marks, list[Transaction]()

    def send_twice(tr: Transaction) -> None:
        if not late:
            late.append(east.db.create_transaction())
            forget(late[0])
        forget(tr)

    def write_and_let_it_arrive() -> None:
        put(town, b"2")
        with suppress(*east.db.errors):
            late[0].commit().wait()

    moving._forget_marks = send_twice  # type: ignore[method-assign]
    before(moving, _copy_all=lambda: before(moving, _look_up=write_and_let_it_arrive)).run()
    assert has(town, key=b"2")


# --- The record of a move is lost, or is of a newer version ---


def lose_record(town: Town) -> None:
    """Lose the record of Alice's move away from the east, as a quarantine of a damaged one does."""
    transact(town.shards["east"].db, lambda tr: tr.clear(move_key(TenantKeys(*town.alice))))


@pytest.mark.parametrize("stage", ["_say_moved", "_end_claims", "_arrive", "_leave_source"])
def test_a_decided_move_whose_record_was_lost_is_ended(stage: str) -> None:
    """Before, the tenant never arrived fully: it could not move again, and its rows stayed at the source."""
    town = Town()
    put(town, b"1")
    item_id = town.enqueue()
    claim(town, item_id)
    move_id = town.begin("north")
    run_until(town, move_id, "north", stage)
    lose_record(town)
    assert town.mover(move_id, "north", at="east").run_item(epoch=town.epochs[move_id])
    assert town.home_name() == "north"
    assert town.rows("east") == [(2,)]
    assert town.findings() == {}
    assert town.move("west") is MoveState.MOVED


@pytest.mark.parametrize("stage", ["_prepare", "_copy_all", "_own"])
def test_a_move_whose_record_was_lost_before_the_decision_is_taken_back(stage: str) -> None:
    town = Town()
    put(town, b"1")
    move_id = town.begin("north")
    run_until(town, move_id, "north", stage)
    lose_record(town)
    assert town.mover(move_id, "north", at="east").run_item(epoch=town.epochs[move_id])
    assert town.home_name() == "east"
    assert town.rows("north") == []
    assert town.findings() == {}
    assert town.move("north") is MoveState.MOVED


def test_a_mover_leaves_a_move_alone_that_a_newer_version_carries_out() -> None:
    """Before, it took the record for lost, and the move back."""
    town = Town()
    move_id = town.begin("north")
    run_until(town, move_id, "north", "_copy_all")
    key = move_key(TenantKeys(*town.alice))
    newer = bytes([FORMAT + 1]) + b"what it means only they know"
    transact(town.shards["east"].db, lambda tr: tr.set(key, newer))
    with pytest.raises(MoveHeldUp, match="upgrade this program"):
        town.mover(move_id, "north", at="east").run_item(epoch=town.epochs[move_id])
    owner = town.owner("east")
    assert owner is not None
    assert owner.move is not None


def newer_mover_takes_over(town: Town) -> bytes:
    """Let a mover of a newer version take over Alice's move away from the east; return the record as we read it."""
    key = move_key(TenantKeys(*town.alice))

    def body(tr: Transaction) -> bytes:
        record = decode(MoveRecord, tr.get(key).value or b"")
        assert record is not None
        record.mover += 1
        tr.set(key, bytes([FORMAT + 1]) + encode(record)[1:])
        return encode(record)

    return transact(town.shards["east"].db, body)


def data_after_a_newer_mover(stage: str) -> object:
    """Let a mover be replaced by one of a newer version, which then carries the move out; return Alice's data."""
    town = Town()
    put(town, b"1")
    move_id = town.begin("north")
    records: list[bytes] = []
    old = before(town.mover(move_id, "north"), **{stage: lambda: records.append(newer_mover_takes_over(town))})
    with suppress(MoveHeldUp):
        old.run_item(epoch=town.epochs[move_id])
    transact(town.shards["east"].db, lambda tr: tr.set(move_key(TenantKeys(*town.alice)), records[0]))
    assert town.mover(move_id, "north").run() is MoveState.MOVED  # This code stands for the newer version's.
    return town.data()


@pytest.mark.parametrize("stage", ["_count_items", "_copy_changes", "_hand_over"])
def test_a_mover_that_one_of_a_newer_version_replaces_leaves_the_destination_alone(stage: str) -> None:
    """Before, it took its move for ended, and cleared what was copied. The newer one went on behind that."""
    assert data_after_a_newer_mover(stage) == {("key",): b"1"}


def test_without_a_look_at_its_version_the_copy_is_cleared() -> None:
    with planted("a record of a move of a newer version is taken for a lost one"):
        assert data_after_a_newer_mover("_count_items") == {}


def test_a_frozen_tenant_is_left_to_a_mover_of_a_newer_version() -> None:
    town = Town()
    put(town, b"1")
    move_id = town.begin("north")
    run_until(town, move_id, "north", "_own")
    record = newer_mover_takes_over(town)
    owner = town.owner("east")
    assert owner is not None
    assert owner.move is not None
    end_frozen_move(town.shards["east"], town.shards["north"], town.alice, owner.move)
    assert town.owner("east") == owner
    transact(town.shards["east"].db, lambda tr: tr.set(move_key(TenantKeys(*town.alice)), record))
    assert town.mover(move_id, "north").run() is MoveState.MOVED
    assert town.data() == {("key",): b"1"}
    assert town.findings() == {}


def arrives_where_it_comes_in(town: Town) -> None:
    """Let a mover that takes its move for decided list the tenant at the destination before that owns it."""
    move_id = town.begin("north")
    run_until(town, move_id, "north", "_own")
    town.mover(move_id, "north")._arrive()


def test_a_tenant_arrives_only_where_it_lives() -> None:
    """A process that cannot read the record may thaw the source, and then the move looks as if it was decided."""
    town = Town()
    arrives_where_it_comes_in(town)
    owner = town.owner("north")
    assert owner is not None
    assert owner.move is not None
    assert owner.move.phase is MovePhase.INCOMING


def test_without_a_look_at_the_phase_it_seems_to_have_arrived() -> None:
    town = Town()
    with planted("a tenant arrives where it only comes in"):
        arrives_where_it_comes_in(town)
    owner = town.owner("north")
    assert owner is not None
    assert owner.move is None
