"""Suspension: a workflow that waits is an item with a later vesting time, whose record says what it waits for.

It holds no slot and no lease meanwhile. The transaction that suspends it reads with conflict everything that it waits
for, so what arrives at the same time either is found here, or finds the item waiting and wakes it.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fairlead.zones.engines import Transaction
from fairlead.zones.layout import ZoneLocation
from fairlead.zones.pipelining import Operation, start_op
from fairlead.zones.probes import probe
from fairlead.zones.queue import insertion, stored_item
from fairlead.zones.records import ItemRecord
from fairlead.zones.top_level import worker_sessions
from fairlead.zones.workflow import children, signals
from fairlead.zones.workflow.arrival import stored_names
from fairlead.zones.workflow.children import ChildResult
from fairlead.zones.workflow.run_records import RunHead
from fairlead.zones.workflow.signals import wait_name
from fairlead.zones.workflow.step_log import Append, HeldRun, append

FIND_MAX = 16  # Reads of things that a run waits for, sent together; each of up to 64,000 bytes.
FOUND_BYTES_MAX = 1_000_000


class Arrived(NamedTuple):
    """What has arrived of what a run waits for: the payload of a signal, or how a child ended.

    `key`: to be cleared in the transaction that notes it as taken.
    """

    key: bytes
    payload: bytes
    child: ChildResult | None = None

    @property
    def size_bytes(self) -> int:
        """About how long it is."""
        return len(self.payload) + (0 if self.child is None else len(self.child.result))


class AwaitedSignal(NamedTuple):
    """A signal that a run waits for."""

    name: str

    @property
    def wait_name(self) -> str:
        """How the waiting item's record names it."""
        return wait_name(self.name)

    def find_op(self, tr: Transaction, location: ZoneLocation, run: bytes) -> Operation[Arrived | None]:
        """Return the oldest one that the run has not taken. Reads with conflict: the range up to it."""
        first = yield from signals.first_op(tr, location, run, self.name)
        return None if first is None else Arrived(*first)


class AwaitedChild(NamedTuple):
    """The end of the child of a call, which a run waits for."""

    name: str
    occurrence: int

    @property
    def wait_name(self) -> str:
        """How the waiting item's record names it."""
        return children.child_wait_name(self.name, self.occurrence)

    def find_op(self, tr: Transaction, location: ZoneLocation, run: bytes) -> Operation[Arrived | None]:
        """Return the report on the child. Reads with conflict: its key."""
        child = yield from children.child_result_op(tr, location, run, self.name, self.occurrence)
        if child is None:
            return None
        return Arrived(children.child_result_key(location.keys.tenant, run, self.name, self.occurrence), b"", child)


Awaited = AwaitedSignal | AwaitedChild


def awaited_of(wait_name: str) -> Awaited | None:
    """Return what a waiting item's record names; None: a newer version wrote it."""
    sort, _, rest = wait_name.partition(" ")
    number, _, name = rest.partition(" ")
    if sort == "child" and number.isascii() and number.isdecimal():
        return AwaitedChild(name, int(number))
    return AwaitedSignal(rest) if sort == "signal" else None


class Wait(NamedTuple):
    """What a run waits for, and until when: then it goes on without any of it."""

    awaited: Sequence[Awaited]
    until_us: int


def find_op(
    tr: Transaction, location: ZoneLocation, run: bytes, awaited: Iterable[Awaited]
) -> Operation[dict[Awaited, Arrived]]:
    """Return what has arrived of what a run waits for, or the first of it, up to a megabyte.

    Reads with conflict: see `find_op` of each.
    """
    found: dict[Awaited, Arrived] = {}
    wanted, found_bytes = list(awaited), 0
    for begin in range(0, len(wanted), FIND_MAX):
        some = wanted[begin : begin + FIND_MAX]
        reads = [start_op(each.find_op(tr, location, run)) for each in some]
        for each, read in zip(some, reads, strict=True):
            first = yield from read
            if first is not None:
                found[each] = first
                found_bytes += first.size_bytes
        if found_bytes > FOUND_BYTES_MAX:
            break
    return found


def suspend_op(
    tr: Transaction,
    held: HeldRun,
    record: ItemRecord,
    head: RunHead,
    wait: Wait,
    pending: Append,
    *,
    head_changed: bool,
    now_us: int,
) -> Operation[dict[Awaited, Arrived]]:
    """Return the item to its queue until `wait.until_us`, unless something that it waits for is there: return that.

    `record`: from `check_held_op` in this transaction. If something is there, nothing is written, and the caller takes
    what was found. May run twice: the second run finds the lease gone.

    Reads with conflict: what it waits for. Writes: pending entries, the head if it is the first or has changed, the
    record, its index entry, the key of its claim; the pointer, if the item vests before its lease would have ended.
    """
    found = yield from find_op(tr, held.location, held.run, wait.awaited)
    if found:
        probe("a run that is about to wait finds what it waits for")
        return found
    append(tr, held, record, head, pending, head_changed=head_changed)
    earlier = wait.until_us < record.vesting_us
    if record.claim:
        worker_sessions.take_away(tr, held.location, held.item_id, record, notify=False)
    record.keeps_run = True
    record.lease_id, record.started, record.ran_isolated = b"", False, False
    record.error_count = record.expiry_count = record.expired_count = 0
    record.waits_for = stored_names(each.wait_name for each in wait.awaited)
    record.suspended_at = record.lease_number
    record.delayed_until_us = max(wait.until_us, now_us)
    stored_item.move(tr, held.location, held.item_id, record, max(wait.until_us, now_us))
    if earlier:
        yield from insertion.wake_op(tr, held.location, earliest_us=wait.until_us, now_us=now_us)
    return {}
