"""Selection by partition: consumers that do not conflict (beyond QuiCK; the idea is the CockroachDB recipe's).

**Who owns what.** Every consumer has a session in each shard, with a heartbeat once a second. A session without a
heartbeat for five seconds has ended (`fairlead.zones.top_level.sessions`). The live sessions divide the top-level queue
among them (`partitioning`): each consumer decides by itself, from the list that it reads with its heartbeat. There are
no requests and no hand-overs: the list changes, and all consumers divide anew within a second.

**What it selects.** The oldest pointers of its own partition, in order. Of other partitions some overdue pointers:
those that have waited for `stealable_after_us`. If it has more than half a batch of its own pointers, it takes only
pointers that are older than its middle one by `stealable_after_us`. An idle owner has scanned several times by then.
So overdue pointers belong to an owner that is full, or slow, or dead without a known end, or at a limit of a kind; or
to no consumer, while lists differ. It selects among the youngest of them by chance, as in random selection, since
their owner takes the oldest first. So ownership gives precedence, and no pointer waits long for it.

    two consumers disagree           both scan, or for a moment neither: leases decide, or the pointers become overdue
    an owner is full                 its heartbeat states it. Consumers with few pointers of their own then steal its
                                     pointers, even young ones, once in `STEAL_POLLS` polls: the pointer of a tenant
                                     with many long items gives an item whenever it can, so it would never be overdue
    all are full                     each keeps to its own
    an owner does not know a kind    it divides only among consumers that know its kinds, so another owns it as well
    a kind is at the owner's limit   the pointer stays vested, and becomes overdue for consumers below their limits
    an owner dies or stalls          its pointers become overdue, and get new owners when the session ends
    it wakes after its session       it owns nothing until its next heartbeat, as at its start
    a clock is off                   a session ends when its heartbeat stands still, without comparing clocks. A
                                     consumer whose clock is ahead takes others' pointers for overdue too early, at most
                                     by its error
    a consumer's clock is unfit      it sends no heartbeat, and selects nothing: its session ends
    it is the only consumer          it owns all: a scan in order, and no more
"""

from collections.abc import Sequence
from random import Random
from typing import Any

from fairlead.actors.scanning.partitioning import NO_PARTITION, Partition, Session
from fairlead.actors.scanning.reading import Eligible, oldest, read_eligible, sample
from fairlead.actors.scanning.strategy import SelectionStrategy
from fairlead.actors.scanning.tenant_turns import interleaved_by_tenant, queue_order
from fairlead.actors.settings import ConsumerSettings
from fairlead.zones.engines import Reader
from fairlead.zones.keyspace import PartKeys
from fairlead.zones.layout import ShardLayout
from fairlead.zones.pipelining import run_together
from fairlead.zones.probes import probe
from fairlead.zones.top_level.pointers import PointerRef, earliest_vesting_us, scan_back

STEALABLE_POLLS = 10  # An idle owner scans every five polls at least,
STEALABLE_US = 200_000  # and later than twice that by so much at most, unless its machine or its store is very busy.
STEAL_POLLS = 10  # Consumers that steal from a full one would conflict if they all did so at each poll.
STEALABLE_PER_PART = 64  # From so many overdue pointers it selects.


class PartitionedSelection(SelectionStrategy):
    """See the module."""

    def __init__(self, layout: ShardLayout, settings: ConsumerSettings, random: Random) -> None:
        super().__init__(layout)
        self._settings = settings
        self._random = random
        self._stealable_after_us = stealable_after_us(settings)
        self._steal_us = STEAL_POLLS * settings.poll_interval_ms * 1000
        self._session = Session(NO_PARTITION, 0)
        self._own = NO_PARTITION
        self._full: tuple[Partition, ...] = ()  # whose pointers the present scan may steal however young they are
        self._stole_us = 0  # when it last did so

    def set_session(self, session: Session) -> None:
        """See `SelectionStrategy`."""
        self._session = session

    def begin(self, now_us: int) -> None:
        """See `SelectionStrategy`."""
        session = self._session
        if now_us >= session.until_us and session.until_us:
            probe("a session has ended, and its consumer owns nothing until its next heartbeat")
        self._own = session.partition if now_us < session.until_us else NO_PARTITION
        self._full = () if 0 <= now_us - self._stole_us < self._steal_us else session.full

    def select(self, tr: Reader, eligible: Eligible, *, now_us: int, parts: Sequence[PartKeys]) -> list[PointerRef]:
        """See `SelectionStrategy`."""
        own = self._own
        if self._full:
            self._stole_us = now_us

        def mine(ref: PointerRef) -> bool:
            return own.contains(ref) and eligible(ref)

        found = oldest(tr, _mine(parts, own), mine, settings=self._settings, now_us=now_us)
        others = _others(parts, own)
        if not others:
            return found
        half = self._settings.batch_pointers // 2
        full = self._full if len(found) <= half else ()
        waiting_since_us = sorted(found, key=queue_order)[half].vesting_us if len(found) > half else now_us
        stealable_before_us = waiting_since_us - self._stealable_after_us

        def theirs(ref: PointerRef) -> bool:
            wanting = ref.vesting_us < stealable_before_us or any(partition.contains(ref) for partition in full)
            return wanting and not own.contains(ref) and eligible(ref)

        stolen = self._steal(tr, theirs, others, before_us=now_us + 1 if full else stealable_before_us)
        if not stolen:
            return found
        probe("a pointer of another consumer is stolen")
        return interleaved_by_tenant(found + stolen)[: self._settings.selection_max]

    def steals(self) -> bool:
        """See `SelectionStrategy`."""
        return bool(self._session.full)

    def may_wait_us(self, part: PartKeys) -> int:
        """See `SelectionStrategy`. Changes in another's part may wait until its pointers are overdue."""
        return 0 if part.part in self._own.parts else self._stealable_after_us

    def due_us(self, tr: Reader, parts: Sequence[PartKeys], *, after_us: int) -> dict[int, int | None]:
        """See `SelectionStrategy`. Others' pointers are due when overdue, or when it may steal from full ones again."""
        own, others = _mine(parts, self._own), _others(parts, self._own)
        stealable_after_us = max(0, after_us - self._stealable_after_us)
        found = run_together(
            [earliest_vesting_us(tr, part, after_us=after_us) for part in own]
            + [earliest_vesting_us(tr, part, after_us=stealable_after_us) for part in others]
        )
        delays = [0] * len(own) + [self._stealable_after_us] * len(others)
        due: dict[int, int | None] = dict.fromkeys((part.part for part in parts), self._steal_due_us())
        for part, vesting_us, delay_us in zip([*own, *others], found, delays, strict=True):
            if vesting_us is not None:
                known_us = due[part.part]
                due[part.part] = vesting_us + delay_us if known_us is None else min(known_us, vesting_us + delay_us)
        return due

    def _steal_due_us(self) -> int | None:
        return self._stole_us + self._steal_us if self._session.full else None

    def _steal(self, tr: Reader, eligible: Eligible, parts: Sequence[PartKeys], *, before_us: int) -> list[PointerRef]:
        """Select among others' pointers that have vested before a time."""

        def backward(part: PartKeys) -> Any:
            return lambda ids_max, end: scan_back(tr, part, before_us=before_us, ids_max=ids_max, end=end)

        found = run_together([read_eligible(backward(part), eligible, STEALABLE_PER_PART) for part in parts])
        return sample([ref for refs, _ in found for ref in refs], self._settings, self._random)


def _mine(parts: Sequence[PartKeys], own: Partition) -> list[PartKeys]:
    """Return the parts that its partition overlaps."""
    return [part for part in parts if part.part in own.parts]


def _others(parts: Sequence[PartKeys], own: Partition) -> list[PartKeys]:
    """Return the parts that its partition does not cover as a whole."""
    return [part for part in parts if not own.contains_part(part.part)]


def stealable_after_us(settings: ConsumerSettings) -> int:
    """Return for how long only its owner selects a pointer."""
    return STEALABLE_POLLS * settings.poll_interval_ms * 1000 + STEALABLE_US
