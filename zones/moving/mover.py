"""The mover: carries out the move of one tenant, from wherever an earlier mover has stopped.

It holds nothing but what it can read again. So it may stop at any point, for ever or for a while, and the next one goes
on: the record of the move says how far it has come, and the ownership records say who decides.
"""

import logging
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import TypeVar

from fairlead.zones.engines import Reader, Transaction, transact
from fairlead.zones.engines.api.errors import (
    KEY_TOO_LARGE,
    TRANSACTION_TOO_LARGE,
    VALUE_TOO_LARGE,
    StoreFull,
    error_code,
)
from fairlead.zones.keyspace import TenantKeys
from fairlead.zones.layout import Tenant
from fairlead.zones.moving import clearing, destination, source
from fairlead.zones.moving.copying import (
    check_limits,
    first_difference,
    in_chunks,
    marked_ranges,
    read_chunk,
    read_marked_keys,
    read_piece,
    row_bytes,
)
from fairlead.zones.moving.destination import Copied
from fairlead.zones.moving.errors import MoveHeldUp, MoverReplaced, Unmovable
from fairlead.zones.moving.marks import Mark, clear_all_marks, clear_marks, read_marks
from fairlead.zones.moving.rescue import say_moved
from fairlead.zones.moving.rows import ZoneCounts, read_zone_counts
from fairlead.zones.moving.source import Mine
from fairlead.zones.open_shard import OpenShard
from fairlead.zones.probes import probe
from fairlead.zones.records import MoveRecord, MoveState, OwnerRecord, decode
from fairlead.zones.top_level.worker_sessions import claims_of_tenant

log = logging.getLogger("fairlead.moves")

T = TypeVar("T")

NOTE_US = 500_000  # So often it notes how far it has come, and looks whether it is to stop.
MARKS_MAX = 1_000  # Copied in one round.
FEW_MARKS = 64  # So few are copied in the milliseconds in which the tenant is frozen.
ROUNDS_FREE = 20  # With more marks than that, before writers are slowed.
PAUSES_US = (1_000, 4_000, 16_000, 64_000)  # How long each writer waits then; each for `ROUNDS_SLOWED` rounds.
ROUNDS_SLOWED = 20
CLAIMS_AT_ONCE = 1_000
LOCKED_WAIT_US = 2_000  # Before it tries again to freeze a tenant that is locked.
CANCELLED = "it was cancelled"
RECORD_LOST = "its record was lost"
NEWER = "a newer version has written its record: upgrade this program"
TOO_BUSY = "its users change more than is copied meanwhile, although they were slowed: try again when they write less"
DAMAGED_ON_THE_WAY = "what was copied is not what is there: see to the destination's disk"
TOO_LARGE = frozenset({KEY_TOO_LARGE, VALUE_TOO_LARGE, TRANSACTION_TOO_LARGE})


class MoverStopped(Exception):
    """The mover is to stop, because its process ends; another one goes on."""


class Mover:
    """Moves a tenant.

    Args:
      at: the shard that the tenant leaves; `to`: the other one.
      first_home: the shard where the tenant lives without a record.
      should_stop: asked between transactions; True ends the mover, and another one goes on.
    """

    def __init__(
        self,
        at: OpenShard,
        to: OpenShard,
        first_home: OpenShard,
        tenant: Tenant,
        move_id: bytes,
        *,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self._at, self._to, self._first_home = at, to, first_home
        self._tenant = tenant
        self._keys = TenantKeys(*tenant)
        self._mine = Mine(move_id, 0)
        self._should_stop = should_stop
        self._zone_counts: ZoneCounts | None = None
        self._chunk = 0
        self._noted_us = 0
        self._rows = self._bytes = 0
        self._epoch = 0
        self._is_decided = False

    def run_item(self, *, epoch: int) -> bool:
        """Do what the item of the move asks for; return whether that is done. False: another mover does it.

        It carries out the move while the move is listed. Later it clears what the move has left. `epoch`: that in which
        the move began.

        Raises:
          See `run`.
        """
        if self._listed_record() is not None:
            return self.run() is not None
        self._clear_unlisted(epoch)
        return True

    def run(self) -> MoveState | None:
        """Carry out the move to its end, and return how it ended; None: another mover does, or it is not listed.

        Raises:
          MoverStopped: `should_stop` says so.
          MoveHeldUp: a mover of a newer version has taken over.
          What the stores raise: try again later.
        """
        record, is_moving = self._in_source(self._take_over)
        if record is None:
            return None
        self._epoch = record.epoch
        if record.state is not MoveState.UNDER_WAY:
            return self._ended_by_others()
        self._mine = Mine(self._mine.move_id, record.mover)
        self._rows, self._bytes = record.copied_rows, record.copied_bytes
        try:
            if is_moving and self._prepare():
                self._copy(record)
            return self._finish()
        except Unmovable as error:
            return self._take_back(CANCELLED if record.cancel_requested else error.reason)
        except MoverReplaced:
            probe("a mover finds itself replaced, and stops")
            return self._ended_by_others()

    def _ended_by_others(self) -> MoveState | None:
        """Clear what was copied, if somebody else has ended the move; return how it ended. None: it goes on.

        None, too, if it is not listed any more: nothing says how it ended.

        Raises:
          MoveHeldUp: a newer version carries it out.
        """
        record = self._listed_record()
        if record is not None and record.state is MoveState.UNDER_WAY:
            return None
        self._close()  # This mover, or an earlier one, may have opened it anew after it was closed.
        self._clear_closed()
        return record.state if record is not None else None

    def _listed_record(self) -> MoveRecord | None:
        def read(tr: Reader) -> MoveRecord | None:
            if source.is_of_newer_version(tr, self._tenant):
                raise MoveHeldUp(tenant=str(self._tenant), reason=NEWER)
            return source.read_move(tr, self._tenant)

        record = self._read(read)
        return record if record is not None and record.move_id == self._mine.move_id else None

    def _clear_unlisted(self, epoch: int) -> None:
        """Clear what was copied by a move that is not listed any more; end it, if its record was lost meanwhile.

        The next move away from the same shard takes the place of the record of an ended one. A destination that owns
        the tenant by another move, or to which a later move brings the tenant, is left alone.
        """
        self._epoch = epoch
        if self._close():
            self._thaw(MoveState.FAILED, RECORD_LOST)
        elif self._is_last():
            self._bring_home()
        if source.has_moved_away(self._at.layout, self._owner_at(self._at), epoch=epoch):
            self._leave_source()
        self._clear_closed()

    def _is_last(self) -> bool:
        """Whether the tenant lives at the destination by this move, and has begun no other since."""
        owner = self._owner_at(self._to)
        return owner is not None and (owner.shard_id, owner.epoch) == (self._to.layout.shard_id, self._epoch + 1)

    # --- From the preparation to the decision ---

    def _take_over(self, tr: Transaction) -> tuple[MoveRecord | None, bool]:
        """Become the mover; return the move's record, and whether the tenant still moves by it.

        If it does not, and the move is under way, then it was decided: a thaw ends both. The destination is not asked,
        because the tenant may have left it, and be forgotten there.
        """
        record = source.take_over(tr, self._tenant, self._mine.move_id)
        owner = source.read_owner(self._at.layout, self._keys, tr.get(self._keys.owner).value)
        move = None if owner is None else owner.move
        return record, move is not None and move.move_id == self._mine.move_id

    def _prepare(self) -> bool:
        """Let the tenant come in; False: the destination owns it already."""
        at_id = self._at.layout.shard_id
        comes_in = self._in_destination(
            lambda tr: destination.prepare(
                tr, self._to.layout, self._tenant, self._mine, epoch=self._epoch, source_id=at_id
            )
        )
        if comes_in:
            owner = self._owner_at(self._to)
            if owner is None or owner.move is None:
                raise MoverReplaced
            self._chunk = owner.move.chunk
        return comes_in

    def _copy(self, record: MoveRecord) -> None:
        """Copy the tenant until the destination owns it."""
        if not record.cursor:
            self._note(stage="clearing the destination")
            self._clear(self._to, lambda owner: destination.is_incoming(owner, self._mine))
            self._measure()
            self._in_source(self._forget_marks)
        self._copy_all(record)
        self._count_items()
        self._copy_changes()
        self._hand_over()

    def _measure(self) -> None:
        """Count what is to be copied, and see that the destination can store it."""
        self._note(stage="measuring")
        rows = size = 0
        begin = b""
        while (copied := self._read(partial(read_chunk, keys=self._keys, begin=begin))) is not None:
            check_limits(copied.rows, self._to.db.limits)
            rows, size, begin = rows + len(copied.rows), size + sum(map(row_bytes, copied.rows)), copied.end
            self._look_up(total_rows=rows, total_bytes=size)
        self._note(stage="copying", total_rows=rows, total_bytes=size)

    def _forget_marks(self, tr: Transaction) -> None:
        """Clear what was marked until now: all of it is still to be copied.

        It also writes the move's record, which it reads. So a commit of unknown result cannot clear later marks: it
        conflicts with the one that was tried after it.
        """
        source.note(tr, self._tenant, self._mine, stage="copying")
        clear_all_marks(tr, self._keys)

    def _copy_all(self, record: MoveRecord) -> None:
        began_us, copied_before = self._at.clock.now_us(), self._bytes
        begin = record.cursor
        while (copied := self._read(partial(read_chunk, keys=self._keys, begin=begin))) is not None:
            self._write([copied])
            begin = copied.end
            self._look_up(cursor=begin)
            ahead_us = (self._bytes - copied_before) * 1_000_000 // record.bytes_per_s
            self._sleep_until(began_us + ahead_us, cursor=begin)
        self._note(cursor=begin, stage="copying what has changed")

    def _sleep_until(self, until_us: int, *, cursor: bytes) -> None:
        """Sleep as the rate demands, and look up twice a second meanwhile: at a low rate this takes half a minute."""
        while (left_us := until_us - self._at.clock.now_us()) > NOTE_US:
            self._at.clock.sleep_us(NOTE_US)
            self._look_up(cursor=cursor)
        self._at.clock.sleep_us(max(0, left_us))

    def _count_items(self) -> None:
        """Read how many items each zone has. What changes from now on is marked, and counted when it is copied."""
        self._zone_counts = read_zone_counts(self._at, self._tenant, self._look_up)

    def _copy_changes(self) -> None:
        """Copy what is marked, until little is; slow the writers if that does not help."""
        rounds = 0
        pauses = list(PAUSES_US)
        until_slower = ROUNDS_FREE
        while self._copy_round() > FEW_MARKS:
            rounds += 1
            self._look_up(rounds=rounds)
            if rounds >= until_slower:
                if not pauses:
                    raise Unmovable(TOO_BUSY)
                probe("a move cannot catch up, and slows the writers")
                self._slow_writers(pauses.pop(0))
                until_slower += ROUNDS_SLOWED
        self._note(rounds=rounds + 1)

    def _slow_writers(self, pause_us: int) -> None:
        self._in_source(lambda tr: source.slow_writers(tr, self._at.layout, self._tenant, self._mine, pause_us))

    def _copy_round(self) -> int:
        """Copy what some marks name, and clear those that are still the same; return how many there were."""
        marks, copied = self._read_marked()
        for chunk in in_chunks(copied):
            self._write(chunk)
        self._in_source(lambda tr: self._clear_marks(tr, marks))
        return len(marks)

    def _read_marked(self) -> tuple[list[Mark], Iterator[Copied]]:
        """Return some marks, and what they name: a long range piece by piece, each read when it is asked for."""

        def read(tr: Reader) -> tuple[list[Mark], list[Copied]]:
            marks = read_marks(tr, self._keys, limit=MARKS_MAX)
            return marks, read_marked_keys(tr, self._keys, marks)

        marks, single_keys = self._read(read)
        return marks, chain(single_keys, self._pieces(marked_ranges(self._keys, marks)))

    def _pieces(self, ranges: list[tuple[bytes, bytes]]) -> Iterator[Copied]:
        for begin, end in ranges:
            at = begin
            while at < end:
                piece = self._read(partial(read_piece, keys=self._keys, begin=at, end=end))
                yield piece
                at = piece.end

    def _clear_marks(self, tr: Transaction, marks: list[Mark]) -> None:
        source.note(tr, self._tenant, self._mine)
        clear_marks(tr, marks)

    def _hand_over(self) -> None:
        """Freeze the tenant, copy what is still marked, and let the destination own it: that decides."""
        clock = self._at.clock
        while (
            frozen := self._in_source(lambda tr: source.freeze(tr, self._at.layout, self._tenant, self._mine))
        ) is None:
            clock.sleep_us(LOCKED_WAIT_US)
            self._copy_round()
            self._look_up()
        frozen_us = clock.now_us()
        try:
            last = self._copy_last()
        except (*self._to.db.errors, *self._at.db.errors):  # Their engines may differ.
            probe("a move cannot copy the last changes, and lets transactions go on meanwhile")
            self._in_source(lambda tr: source.unfreeze(tr, self._at.layout, self._tenant, self._mine))
            raise
        self._note_counts(last)
        assert self._zone_counts is not None
        self._own(frozen, last, self._zone_counts)
        self._is_decided = True
        if self._say_moved():
            self._note(frozen_us=max(0, clock.now_us() - frozen_us), stage="arriving")

    def _copy_last(self) -> list[Copied]:
        """Copy what is marked of the frozen tenant, but for a last chunk, which the decision writes; return that.

        Marks are cleared after what they name has been copied, because another mover may have to go on.
        """
        while True:
            marks, copied = self._read_marked()
            last: list[Copied] = []
            for chunk in in_chunks(copied):
                if last:
                    self._write(last)
                last = chunk
            if len(marks) < MARKS_MAX:
                return last
            self._write(last)
            self._in_source(partial(self._clear_marks, marks=marks))

    def _own(self, frozen: OwnerRecord, last: list[Copied], zone_counts: ZoneCounts) -> None:
        depths, zones = zone_counts.depths(self._to.layout), zone_counts.busy_zones(self._to.layout)

        def body(tr: Transaction) -> None:
            now_us = self._to.clock.now_us()
            destination.own(tr, self._to.layout, self._tenant, self._mine, frozen, last, depths, zones, now_us=now_us)

        try:
            self._in_destination(body)
        except MoverReplaced:
            if not destination.owns(self._to.layout, self._owner_at(self._to), epoch=self._epoch):
                raise
            probe("a decision of a move of unknown result is found")

    # --- After the decision ---

    def _say_moved(self) -> bool:
        return say_moved(self._at, self._tenant, self._mine.move_id, zone_counts=self._zone_counts)

    def _finish(self) -> MoveState:
        """Let the tenant arrive, and clear what is left of it at the source."""
        self._is_decided = True
        self._bring_home()
        self._note(stage="clearing the source")
        self._leave_source()
        now_us = self._at.clock.now_us()
        self._note(state=MoveState.MOVED, stage="", ended_us=now_us)
        return MoveState.MOVED

    def _bring_home(self) -> None:
        """Say where the tenant lives, and make what names its rows there."""
        self._say_moved()
        self._end_claims()
        self._arrive()
        to_id, layout = self._to.layout.shard_id, self._first_home.layout
        if layout.shard_id not in (to_id, self._at.layout.shard_id):
            transact(
                self._first_home.db,
                lambda tr: destination.update_stub(tr, layout, self._tenant, epoch=self._epoch, destination_id=to_id),
            )

    def _leave_source(self) -> None:
        """Clear what is left of the tenant at the source, unless a later move from there is to do it."""
        try:
            self._clear(
                self._at,
                lambda owner: source.has_moved_away(self._at.layout, owner, epoch=self._epoch),
                left_behind=True,
            )
            self._in_source(lambda tr: source.forget_stub(tr, self._at.layout, self._tenant, epoch=self._epoch))
        except MoverReplaced:  # It comes back already.
            probe("a tenant returns before it is cleared")

    def _end_claims(self) -> None:
        """Make claims on the tenant's items plain leases, and clear their keys at the source."""
        begin: bytes | None = b""
        while begin is not None:
            some = self._read(
                partial(
                    claims_of_tenant, layout=self._at.layout, tenant=self._tenant, begin=begin, keys_max=CLAIMS_AT_ONCE
                )
            )
            if some.claims:
                claimed = [(session_id, item_id, location.name) for _, session_id, (location, item_id) in some.claims]
                transact(
                    self._to.db,
                    partial(
                        destination.end_claims,
                        layout=self._to.layout,
                        tenant=self._tenant,
                        claimed=claimed,
                        epoch=self._epoch,
                    ),
                )
                self._clear_claims([key for key, _, _ in some.claims])
            begin = some.next_key

    def _clear_claims(self, keys: list[bytes]) -> None:
        def may_clear(owner: OwnerRecord | None) -> bool:
            """Not those of a later move: `end_claims` has ended none of them."""
            is_last = owner is not None and owner.epoch == self._epoch + 1
            return is_last and source.has_moved_away(self._at.layout, owner, epoch=self._epoch)

        try:
            self._in_source(lambda tr: clearing.clear_claims(tr, self._at.layout, self._tenant, keys, may_clear))
        except MoverReplaced:
            probe("a tenant returns before its claims are cleared")  # Or it has left again since.

    def _arrive(self) -> None:
        begin, arriving = b"", True
        try:
            while arriving:

                def body(tr: Transaction, begin: bytes = begin) -> bytes:
                    now_us = self._to.clock.now_us()
                    return destination.arrive(tr, self._to.layout, self._tenant, self._mine, begin, now_us=now_us)

                begin = transact(self._to.db, body)
                arriving = bool(begin)
        except MoverReplaced:
            probe("a mover finds that the tenant has arrived")

    def _take_back(self, reason: str) -> MoveState | None:
        """Close the destination, and only then let the source go on as if the tenant had not moved."""
        if not self._close():
            probe("a move that is to be taken back has been decided")
            try:
                return self._finish()
            except MoverReplaced:
                return None
        state = MoveState.CANCELLED if reason == CANCELLED else MoveState.FAILED
        self._thaw(state, reason)
        self._clear_closed()
        return state

    def _thaw(self, state: MoveState, reason: str) -> None:
        """Let the source go on, unless it does not move by this move."""
        layout, move_id, now_us = self._at.layout, self._mine.move_id, self._at.clock.now_us()
        self._in_source(
            lambda tr: source.thaw(
                tr, layout, self._tenant, move_id, state=state, error=reason, ended_us=now_us, stage=""
            )
        )

    def _close(self) -> bool:
        """Let the tenant not come in any more; False: the destination owns it."""
        layout, move_id = self._to.layout, self._mine.move_id
        return transact(self._to.db, lambda tr: destination.close(tr, layout, self._tenant, move_id, epoch=self._epoch))

    def _clear_closed(self) -> None:
        """Clear what was copied to a destination that has been closed; the source has been thawed.

        The tenant may have moved there after all, and on: then the mover of that move clears what is there.
        """
        layout, at_id, move_id = self._to.layout, self._at.layout.shard_id, self._mine.move_id
        try:
            self._clear(self._to, lambda owner: destination.is_closed(layout, owner), left_behind=True)
        except MoverReplaced:
            probe("a tenant comes in anew before what was copied first is cleared")
            return
        transact(
            self._to.db,
            lambda tr: destination.forget_closed(tr, layout, self._tenant, move_id, epoch=self._epoch, source_id=at_id),
        )

    # --- What all of them use ---

    def _clear(
        self, shard: OpenShard, may_clear: Callable[[OwnerRecord | None], bool], *, left_behind: bool = False
    ) -> None:
        """Clear the tenant's rows on a shard. `left_behind`: a move that takes the tenant away from there is to do it.

        But where a move had begun to bring the tenant back, and was closed, that move has to clear its copies itself.

        Raises:
          MoverReplaced: `may_clear` does not hold, or another move is to do it.
        """

        def piece(tr: Transaction) -> bool:
            if left_behind and source.is_left_by_another(tr, shard.layout, self._tenant, self._mine.move_id):
                raise MoverReplaced
            return clearing.clear_piece(tr, shard.layout, self._tenant, may_clear)

        more = True
        while more:
            more = transact(shard.db, piece)
            self._stop_if_asked()

    def _write(self, chunk: list[Copied]) -> None:
        """Write a chunk at the destination, read it back, and count it."""
        self._chunk += 1
        self._in_destination(
            lambda tr: destination.write_chunk(tr, self._to.layout, self._tenant, self._mine, self._chunk, chunk)
        )
        different = transact(self._to.db, lambda tr: first_difference(tr, self._keys, chunk))
        if different is not None:
            raise Unmovable(f"{DAMAGED_ON_THE_WAY}; key {different.hex()[:200]}")
        self._note_counts(chunk)
        self._rows += sum(len(each.rows) for each in chunk)
        self._bytes += sum(row_bytes(row) for each in chunk for row in each.rows)

    def _note_counts(self, chunk: list[Copied]) -> None:
        if self._zone_counts is None:  # Nothing has been counted yet.
            return
        for each in chunk:
            self._zone_counts.replace(each.begin, each.end, each.rows)

    def _look_up(self, **changes: object) -> None:
        """Note how far it has come, if that was last noted a while ago."""
        self._stop_if_asked()
        if abs(self._at.clock.now_us() - self._noted_us) >= NOTE_US:
            self._note(**changes)

    def _note(self, **changes: object) -> None:
        """Note how far it has come.

        Raises:
          Unmovable: the move is to be cancelled.
          MoverReplaced: another mover has taken over.
        """
        changes |= {"copied_rows": self._rows, "copied_bytes": self._bytes}
        record = self._in_source(lambda tr: source.note(tr, self._tenant, self._mine, **changes))
        self._noted_us = self._at.clock.now_us()
        self._stop_if_asked()
        if record.cancel_requested and not self._is_decided:
            raise Unmovable(CANCELLED)

    def _stop_if_asked(self) -> None:
        if self._should_stop():
            raise MoverStopped

    def _read(self, body: Callable[[Reader], T]) -> T:
        return transact(self._at.db, body)

    def _in_source(self, body: Callable[[Transaction], T]) -> T:
        return transact(self._at.db, body)

    def _in_destination(self, body: Callable[[Transaction], T]) -> T:
        """Run a transaction that copies.

        Raises:
          Unmovable: the destination is full, or does not store what is so long.
        """
        try:
            return transact(self._to.db, body)
        except self._to.db.errors as error:
            if isinstance(error, StoreFull):
                raise Unmovable(f"the destination is full: {error}") from error
            if error_code(error) in TOO_LARGE:
                raise Unmovable(f"the destination does not store what is so long: {error}") from error
            raise

    def _owner_at(self, shard: OpenShard) -> OwnerRecord | None:
        value = transact(shard.db, lambda tr: tr.get(self._keys.owner).value)
        return None if value is None else decode(OwnerRecord, value)
