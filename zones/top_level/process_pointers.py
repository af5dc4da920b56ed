"""One visit of a pointer: lease, dequeue, and requeue or delete it (QuiCK section 6, Algorithm 2).

The three share one transaction, and so may many visits: whoever else touched the pointer makes the commit conflict,
so the lease of the pointer never has to be written. A pointer that stays contended is leased first, by `lease`, in a
transaction of its own, and its visit then runs under that lease. Consumers keep away from it then; enqueues do not, and
one to a busy tenant comes during every visit. So a visit under a lease leaves the pointer awake whatever it finds: then
no enqueue conflicts with it, and what was there is taken.

Where a pointer goes after a visit:
    items are left that can run      to now: behind every other vested pointer, unless its turn is not over (`turns`)
    items at their kinds' limits     for `throttle_delay`
    only items of unknown kinds      until the first of the others vests, `pause_recheck` at most
    only paused items                to sleep until the first of the others vests, `max_sleep` at most; see `rules`
    only delayed and leased items    to sleep until the first of them vests, `max_sleep` at most
    nothing                          to sleep until `min_inactive` has passed, and then it is deleted
    whatever it is, under a lease    for `wake_slack` at most, which is not a sleep
What cannot run here may run on another consumer: if one that lives knows such a kind, the pointer stays vested for it,
and this one leaves it alone for the time said. Else the clock that is ahead would come first, time and again.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from fairlead.zones.engines import Reader, Transaction
from fairlead.zones.layout import Layout, Place
from fairlead.zones.pipelining import Steps, alone, begun, in_step
from fairlead.zones.policy import policies
from fairlead.zones.policy.fair_share import ITEM, Turns
from fairlead.zones.policy.policies import NO_RULES, Rules, rules_steps
from fairlead.zones.probes import probe
from fairlead.zones.queue import stored_item
from fairlead.zones.queue.dequeue_plan import (
    Choice,
    Fit,
    Room,
    Search,
    choose_steps,
    take,
)
from fairlead.zones.queue.index_scan import conflict_before_first
from fairlead.zones.queue.items import LeasedItem
from fairlead.zones.records import ItemRecord, PointerRecord, decode, is_newer
from fairlead.zones.settings import ZoneSettings
from fairlead.zones.top_level import pointers
from fairlead.zones.top_level.pointers import PointerRef
from fairlead.zones.top_level.sessions import listing_steps


class Found(Enum):
    """What a visit found at a pointer."""

    SERVED = "served"  # it was leased and requeued, whether or not it held anything to run
    DELETED = "deleted"  # its zone has been empty for `min_inactive`
    LEASED = "leased"  # it has not vested any more: another consumer came first
    GONE = "gone"  # the index entry led nowhere, or to another vesting time, and was cleared if it still stood
    UNREADABLE = "unreadable"  # written by a newer version: left alone


class LeftAlone(NamedTuple):
    """A pointer as a consumer left it to others: vested, and not to be looked at again by this one before `until_us`.

    Others can make something of it, and each look of this one would be in their way. Once it vests at another time,
    somebody has, or has enqueued something (`pointers.wake`), and what is there may be for this one.
    """

    id: bytes
    vesting_us: int
    until_us: int


@dataclass(slots=True)
class Visit:
    """How a visit went."""

    ref: PointerRef
    found: Found
    place: Place | None = None
    items: Sequence[LeasedItem] = ()
    buried: Sequence[tuple[bytes, ItemRecord]] = ()  # what it buried
    unreadable: int = 0
    left_alone: LeftAlone | None = None
    passed_kinds: Collection[str] = ()  # of what has vested and cannot run now
    suspects: int = 0  # items that it passed over because they must run alone


@dataclass(frozen=True, slots=True)
class VisitTerms:
    """What all visits of a transaction have in common.

    `lease_id`: 16 random bytes, new for every transaction. `holder`: the consumer's id. `may_leave`: whether what
    cannot run here may be left to other consumers, vested; else it sleeps.
    """

    now_us: int
    lease_id: bytes
    lease_us: int
    items_max: int
    throttle_delay_us: int
    pause_recheck_us: int
    may_leave: bool = True
    holder: bytes | None = None


def visit_all(
    tr: Transaction, layout: Layout, refs: Sequence[PointerRef], room: Room, terms: VisitTerms, known: Rules = NO_RULES
) -> tuple[list[Visit], Rules]:
    """Visit pointers side by side, by the rules in force; return the visits, and the rules as they were found.

    `known`: the rules as they were found last. While the shard is paused nothing is visited.
    """
    asking = begun(rules_steps(tr, known))
    turns = Turns(layout, terms.items_max)
    visits = [begun(visit_steps(tr, layout, ref, room, turns, terms)) for ref in refs]
    in_force = alone(asking)
    if in_force.shard_paused:
        probe("a paused shard is not visited")
        return [], in_force
    room.paused = in_force.paused_kinds
    for kind in in_force.tighter_than(room.heard):
        room.close(kind)  # Nobody has asked yet how many may run.
    return in_step(visits), in_force


def visit_steps(
    tr: Transaction, layout: Layout, ref: PointerRef, room: Room, turns: Turns, terms: VisitTerms
) -> Steps[Visit]:
    """Lease the pointer, dequeue from its zone, and requeue or delete it. Joins `turns`, which the batch shares.

    Reads with conflict: the pointer, ownership, the records of the items taken; before a sleep: the vesting index up
    to the first entry of every priority, or all of it if there is something in it that nobody here can run; before a
    deletion: the whole item range. Writes: the pointer and its index entry, the items and theirs; before a sleep: a
    declared write conflict on the pointer's guard, so that a concurrent enqueue of another priority sees the sleep. A
    pointer that is left to others is a sleep to whoever leaves it.

    The entry says which zone, so the first round reads the pointer, ownership and the front of the zone's index. A
    pointer that is damaged is made anew.
    """
    place = pointers.place_of(ref, layout)
    if place is None:
        probe("an index entry of a pointer names no zone of its part")
        return (yield from _clear_dangling(tr, layout, ref))
    stored = tr.get(place.keys.pointer)
    search = Search(place, room, now_us=terms.now_us)
    turn = turns.join(place.tenant, tr.get(place.keys.tenant.owner))
    choosing = begun(choose_steps(tr, search, turn, lease_us=terms.lease_us))
    yield
    if stored.value is None:
        probe("a pointer was deleted between the scan and the visit")
        return (yield from _clear_dangling(tr, layout, ref))
    pointer = decode(PointerRecord, stored.value)
    damaged = pointer is None and not is_newer(stored.value)
    if damaged:  # All that it says can be found out anew.
        pointer = PointerRecord(ref.vesting_us, terms.now_us, priority=ref.priority)
    if pointer is None:
        until_us = terms.now_us + terms.pause_recheck_us
        return Visit(ref, Found.UNREADABLE, left_alone=LeftAlone(ref.id, ref.vesting_us, until_us))
    if pointer.vesting_us > terms.now_us and pointer.lease_id != terms.lease_id:
        if pointer.vesting_us != ref.vesting_us:
            probe("a pointer was moved between the scan and the visit")
            yield from _clear_dangling(tr, layout, ref)
        return Visit(ref, Found.LEASED)
    search.resume_at(pointer.resume, Fit(pointer.passed))
    turn.credit = pointer.credit
    choice = yield from choosing
    pointer.credit = turn.credit_after(taken=len(choice.items), more=choice.left is Fit.RUNS)
    if pointer.lease_id == terms.lease_id:
        found, left_alone = Found.SERVED, None
        _requeue_awake(tr, place, pointer, choice, terms)
    else:
        found, left_alone = yield from _requeue_steps(tr, place, pointer, choice, room, terms)
    items = take(
        tr, place, choice, lease_id=terms.lease_id, lease_us=terms.lease_us, now_us=terms.now_us, holder=terms.holder
    )
    unreadable = choice.unreadable + damaged
    return Visit(ref, found, place, items, choice.buried, unreadable, left_alone, choice.passed_kinds, choice.suspects)


def lease(tr: Transaction, layout: Layout, ref: PointerRef, *, lease_id: bytes, lease_us: int, now_us: int) -> bool:
    """Take a lease on a vested pointer (QuiCK section 6, Algorithm 2, line 1); False if somebody else has it.

    Reads the record with conflict; writes it and its index entry. Does not conflict with enqueues. May run twice: one
    that carries `lease_id` was leased by an attempt before this one, whose commit was of unknown result.
    """
    place = pointers.place_of(ref, layout)
    if place is None:
        return False
    value = tr.get(place.keys.pointer).value
    pointer = None if value is None else decode(PointerRecord, value)
    if pointer is not None and pointer.lease_id == lease_id:
        probe("a lease of a pointer of unknown result is found applied")
        return True
    if pointer is None or pointer.vesting_us > now_us:
        probe("a contended pointer is somebody else's by now")
        return False
    pointer.lease_id, pointer.lease_us, pointer.left = lease_id, lease_us, False
    pointers.move(tr, place, pointer, now_us + lease_us, now_us=now_us)
    return True


def delay_after(choice: Choice, *, last_active_us: int, terms: VisitTerms, settings: ZoneSettings) -> int | None:
    """Return for how long to requeue a pointer after a visit, in microseconds, or None to delete it."""
    sleep_us_max = settings.max_sleep_ms * 1000
    next_us = min((entry.vesting_us - terms.now_us for entry in choice.first), default=None)
    if choice.left is Fit.RUNS:
        return 0
    if choice.left is Fit.FULL:
        probe("a zone has only kinds at their limits left")
        return terms.throttle_delay_us
    if choice.left is Fit.UNKNOWN:
        # What vests next may be of another kind; but that it vests is no reason to look more often than at a limit.
        wait_us = terms.pause_recheck_us if next_us is None else max(next_us, terms.throttle_delay_us)
        return min(wait_us, terms.pause_recheck_us, sleep_us_max)
    if choice.left is Fit.PAUSED:
        return sleep_us_max if next_us is None else min(max(next_us, terms.throttle_delay_us), sleep_us_max)
    if next_us is None:
        inactive_us = terms.now_us - last_active_us
        by_wrong_clock = inactive_us < -settings.max_skew_ms * 1000
        if inactive_us >= settings.min_inactive_ms * 1000 or by_wrong_clock:
            return None
        return min(settings.min_inactive_ms * 1000 - inactive_us, sleep_us_max)
    return min(next_us, sleep_us_max)


def _requeue_awake(tr: Transaction, place: Place, pointer: PointerRecord, choice: Choice, terms: VisitTerms) -> None:
    """Requeue a visited pointer to where it is not asleep to any enqueue."""
    settings = place.layout.settings
    slack_us = settings.wake_slack_ms * 1000
    delay_us = delay_after(choice, last_active_us=pointer.last_active_us, terms=terms, settings=settings)
    _note_visit(pointer, choice, terms, left=False)
    vesting_us = terms.now_us + (slack_us if delay_us is None else min(delay_us, slack_us))
    pointers.move(tr, place, pointer, vesting_us, now_us=terms.now_us, mark=_mark(choice))


def _note_visit(pointer: PointerRecord, choice: Choice, terms: VisitTerms, *, left: bool) -> None:
    """Note in a pointer how a visit has left its zone, whether to others, and that nobody has leased it any more."""
    if choice.left is not None or choice.first:
        pointer.last_active_us = terms.now_us
    pointer.lease_id, pointer.lease_us = b"", 0
    pointer.resume, pointer.passed = choice.resume, int(choice.passed)
    pointer.left = left
    pointer.found = choice.left


def _mark(choice: Choice) -> bytes:
    return pointers.UNREADABLE if choice.unreadable else b""


def _requeue_steps(
    tr: Transaction, place: Place, pointer: PointerRecord, choice: Choice, room: Room, terms: VisitTerms
) -> Steps[tuple[Found, LeftAlone | None]]:
    """Requeue or delete a visited pointer; return which, and whether it was left to others."""
    settings = place.layout.settings
    delay_us = delay_after(choice, last_active_us=pointer.last_active_us, terms=terms, settings=settings)
    elsewhere = False
    if terms.may_leave and choice.left in (Fit.UNKNOWN, Fit.FULL):
        elsewhere = yield from _may_run_elsewhere_steps(tr, choice, room, terms.now_us)
    if choice.left is None:
        if (yield from _revoke_steps(tr, place, choice, terms)):
            delay_us = 0
        conflict_before_first(tr, place.keys, choice.first)
    elif choice.left in (Fit.PAUSED, Fit.UNKNOWN):
        # What can run may be enqueued behind what cannot, at this moment, by one who still finds the pointer awake.
        tr.add_read_conflict_range(place.keys.vest_priority(0), place.keys.vest_end())
    if delay_us is None:
        begin, end = place.keys.item_range()
        rows = tr.get_range(begin, end, limit=1)
        yield
        if next(iter(rows), None) is None:
            probe("a pointer is deleted")
            pointers.delete(tr, place, pointer)
            return Found.DELETED, None
        delay_us = terms.pause_recheck_us  # records without index entries: only a repair can help them
    yield  # All visits of a batch declare their conflicts, then all write: a conflict is cheap before the first write.
    _note_visit(pointer, choice, terms, left=elsewhere)
    until_us = vesting_us = terms.now_us + delay_us
    if pointer.credit >= ITEM:
        probe("a pointer keeps its place, because its tenant's turn is not over")
        vesting_us = pointer.vesting_us
    if elsewhere:
        probe("a pointer is left to another consumer")
        # Where it was, unless this visit has taken something: then it is another's turn to look.
        vesting_us = terms.now_us if choice.items else min(pointer.vesting_us, terms.now_us)
    if vesting_us <= terms.now_us:
        pointers.tell_scanners(tr, place)  # Whoever visits next need not be the one whose manager this is.
    bound_us = settings.max_sleep_ms * 1000
    pointers.move(tr, place, pointer, vesting_us, now_us=terms.now_us, bound_us=bound_us, mark=_mark(choice))
    if delay_us > settings.wake_slack_ms * 1000:
        tr.add_write_conflict_key(place.keys.pointer_guard)
        policies.park(tr, place, choice.passed_kinds & room.paused)
    return Found.SERVED, LeftAlone(place.pointer_id, vesting_us, until_us) if elsewhere else None


def _revoke_steps(tr: Transaction, place: Place, choice: Choice, terms: VisitTerms) -> Steps[bool]:
    """Let items vest now whose lease ends later than any may, by a clock that was ahead; say whether there were any.

    Of each priority it looks at the first entry, and only if that is too far away for a lease: the next visit, which
    comes at once, finds the next. Reads with conflict: their records.
    """
    settings = place.layout.settings
    latest_us = terms.now_us + (settings.max_item_lease_ms + settings.max_skew_ms) * 1000
    far = [entry for entry in choice.first if entry.vesting_us > latest_us]
    if not far:
        return False
    reads = [tr.get(place.keys.item(entry.id)) for entry in far]
    yield
    revoked = False
    for entry, read in zip(far, reads, strict=True):
        record = None if read.value is None else decode(ItemRecord, read.value)
        if record is not None and record.lease_id and record.vesting_us == entry.vesting_us:
            probe("a lease that ends later than any may is revoked")
            stored_item.move(tr, place, entry.id, record, terms.now_us)
            revoked = True
    return revoked


def _may_run_elsewhere_steps(tr: Reader, choice: Choice, room: Room, now_us: int) -> Steps[bool]:
    """Say whether a live consumer besides this one knows a kind of what cannot run here. Snapshot reads."""
    kinds = choice.passed_kinds - room.paused
    if not kinds:
        return False
    present = yield from listing_steps(tr, now_us=now_us)
    knowing = sum(each.live and not kinds.isdisjoint(each.presence.kinds) for each in present)
    return knowing > any(room.fit(kind) is not Fit.UNKNOWN for kind in kinds)  # This one knows it too.


def _clear_dangling(tr: Transaction, layout: Layout, ref: PointerRef) -> Steps[Visit]:
    """Clear an index entry that leads nowhere, or to another vesting time; the record was read with conflict."""
    key = layout.parts[ref.part].vest(ref.priority, ref.vesting_us, ref.id)
    entry = tr.get(key)
    yield
    if entry.value is not None:
        probe("an index entry of a pointer leads nowhere")
        tr.clear(key)
    return Visit(ref, Found.GONE)
