"""What a worker writes about itself on one shard, a second after anything happens: its timesheet and its series.

Plain bookkeeping until `write`, which is one transaction; who calls it is `custody`. Writing is also when a worker
looks whether what has run there for a second is still its own: an item that somebody cancelled is interrupted so.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import nlargest
from typing import NamedTuple

from msgspec.structs import replace

from fairlead.actors.execution.in_flight import Held, Phase
from fairlead.actors.execution.zone_by_zone import zone_by_zone
from fairlead.actors.handlers import Form
from fairlead.actors.messages import ItemRef
from fairlead.actors.runtime.actor_identity import Identity
from fairlead.zones.layout import Tenant
from fairlead.zones.probes import probe
from fairlead.zones.queue.progress import progress_steps
from fairlead.zones.records import ItemRecord, Progress, decode
from fairlead.zones.reporting import rollups, worker_status
from fairlead.zones.reporting.completion_log import How, how_ended
from fairlead.zones.reporting.rollups import SUM_AFTER_SLOTS, KindTally, Tally, slot_of
from fairlead.zones.reporting.worker_status import RUNNING_MAX, SHEET_US, Running, Timesheet
from fairlead.zones.shard import Shard
from fairlead.zones.transaction_runner import Attempt

# Of how many tenants a worker keeps the handlers' time before it forgets those with least: of many small ones no sum is
# right, of those that take much it is.
TENANTS_MAX = 2_000
TENANTS_KEPT = 200
TALLIES_MAX = 30  # Slots that a worker keeps for a store that does not take them: five minutes.


class SlotTally:
    """What ends in one slot of the series. `noted`: how often something was; `written`: of that, what is stored."""

    __slots__ = ("_kinds", "_tenants", "noted", "slot", "written")

    def __init__(self, slot: int) -> None:
        self.slot = slot
        self.noted = 0
        self.written = 0
        self._kinds: dict[str, KindTally] = {}
        self._tenants: dict[Tenant, int] = {}

    def note(self, kind: str, outcome: str, count: int) -> None:
        """Count what became of attempts: a field of `KindTally`."""
        tally = self._of(kind)
        setattr(tally, outcome, getattr(tally, outcome) + count)

    def note_times(self, runs: Iterable[tuple[ItemRef, int]]) -> None:
        """Count how long handlers have run, whatever became of their items."""
        kinds: Counter[str] = Counter()
        tenants = self._tenants
        for ref, took_us in runs:
            run_us = max(0, took_us)
            kinds[ref.kind] += run_us
            tenants[ref.tenant] = tenants.get(ref.tenant, 0) + run_us
        for kind, run_us in kinds.items():
            self._of(kind).run_us += run_us
        if len(tenants) > TENANTS_MAX:
            self._tenants = dict(nlargest(TENANTS_KEPT, tenants.items(), key=lambda each: (each[1], each[0])))

    def _of(self, kind: str) -> KindTally:
        self.noted += 1
        tally = self._kinds.get(kind)
        if tally is None:
            tally = self._kinds[kind] = KindTally()
        return tally

    def may_be_summed(self, now_us: int) -> bool:
        """Whether a row of it is stored that may have gone into the sum of its slot: another would be added to it."""
        return self.written > 0 and self.slot <= slot_of(now_us) - SUM_AFTER_SLOTS

    def stored(self) -> Tally:
        """Return it as it is stored."""
        tenants: dict[str, dict[str, int]] = {}
        for (app, user), run_us in self._tenants.items():
            tenants.setdefault(app, {})[user] = run_us
        return Tally({kind: replace(tally) for kind, tally in self._kinds.items()}, tenants).shortened()


class Row(NamedTuple):
    """A tally as it is about to be stored, and how much it had noted then."""

    tally: SlotTally
    noted: int
    stored: Tally


@dataclass(frozen=True, slots=True)
class Account:
    """What a worker is about to write.

    `checked`: the items of which it asks whether they are still its own. `progress`: what their handlers have told.
    """

    sheet: Timesheet
    rows: Sequence[Row]
    checked: Sequence[Held]
    progress: Sequence[tuple[Held, Progress]]


class Timekeeper:
    """Keeps a worker's timesheet on one shard. All but what writes is called with the worker's lock held."""

    def __init__(self, shard: Shard, identity: Identity, *, life: bytes, slots: int) -> None:
        self._shard = shard
        self._identity = identity
        self._life = life
        self._slots = slots
        self._tallies: dict[int, SlotTally] = {}  # by slot; those of which not all is stored, and the last
        self._due_us: int | None = None  # when to write; None: what was written last is still so

    def note(self, kind: str, outcome: str, count: int, *, now_us: int) -> None:
        """Count what became of attempts."""
        self._tally(now_us).note(kind, outcome, count)

    def note_times(self, runs: Iterable[tuple[ItemRef, int]], *, now_us: int) -> None:
        """Count how long handlers have run, microseconds: once, when they have ended or are given up."""
        self._tally(now_us).note_times(runs)

    def _tally(self, now_us: int) -> SlotTally:
        slot = slot_of(now_us)
        if slot not in self._tallies:
            self._forget(now_us)
            self._tallies[slot] = SlotTally(slot)
        self.begin(now_us)
        return self._tallies[slot]

    @property
    def unwritten(self) -> bool:
        """Whether something has happened since it wrote."""
        return self._due_us is not None

    def begin(self, now_us: int) -> None:
        """Note that the worker holds something, or has done something: it is written a second later."""
        if self._due_us is None:
            self._due_us = now_us + SHEET_US

    def is_due(self, now_us: int) -> bool:
        """Say whether it is time to write. A clock that was set back does not put it off."""
        return self._due_us is not None and not 0 < self._due_us - now_us <= SHEET_US

    def account(self, held_items: Iterable[Held], *, now_us: int) -> Account:
        """Return what is to be written now, of all that the worker holds."""
        running = [held for held in held_items if held.phase is Phase.RUNNING and not held.job.cancelled]
        mine = sorted((held for held in running if held.ref.shard == self._shard.name), key=lambda each: each.since_us)
        told = [(held, held.job.reported) for held in mine if held.handler.form is not Form.TRANSACTIONAL]
        progress = [(held, new) for held, new in told if new is not None and new is not held.record.progress]
        identity = self._identity
        sheet = Timesheet(
            consumer_id=identity.consumer_id,
            host=identity.host,
            pid=identity.pid,
            slots=self._slots,
            busy=len(running),
            written_us=now_us,
            running=[_as_stored(held) for held in mine[:RUNNING_MAX]],
        )
        self._forget(now_us)
        changed = [tally for tally in self._tallies.values() if tally.noted > tally.written]
        rows = [Row(tally, tally.noted, tally.stored()) for tally in changed]
        self._due_us = now_us + SHEET_US if mine else None
        checked = [held for held in mine if now_us - held.since_us >= SHEET_US and not held.job.may_be_completed]
        return Account(sheet, rows, checked, progress)

    def _forget(self, now_us: int) -> None:
        """Forget the tallies of slots that are over, once they are stored, and what a store does not take for long."""
        slot = slot_of(now_us)
        for tally in list(self._tallies.values()):
            if (tally.slot != slot and tally.noted == tally.written) or tally.may_be_summed(now_us):
                del self._tallies[tally.slot]
        while len(self._tallies) > TALLIES_MAX:
            del self._tallies[min(self._tallies)]

    def note_written(self, account: Account) -> None:
        """Note that an account is stored. What was noted since is told by the next."""
        for row in account.rows:
            row.tally.written = row.noted

    def write(self, account: Account) -> list[Held]:
        """Write the sheet and the rows; return those of the `checked` items that are not this worker's any more.

        Blind writes and snapshot reads: it conflicts with nothing, and may run twice.
        """

        def body(attempt: Attempt) -> list[tuple[Held, bool]]:
            tr = attempt.tr
            for row in account.rows:
                rollups.write(tr, self._life, row.tally.slot, row.stored)
            worker_status.write(tr, self._life, account.sheet)
            places = [self._shard.layout.place(held.ref.tenant, held.ref.zone) for held in account.checked]
            reads = [
                tr.snapshot.get(place.keys.item(held.ref.item_id))
                for place, held in zip(places, account.checked, strict=True)
            ]
            checks = zip(account.checked, reads, strict=True)
            return [(held, read.value is None) for held, read in checks if not _is_held(held, read.value)]

        found = self._shard.transact(body)
        return [held for held, gone in found if not (gone and self._has_completed(held))]

    def _has_completed(self, held: Held) -> bool:
        """Say whether the handler of an item that is gone may have completed it, and not somebody cancelled it.

        A Ray task that does may go on, and nobody here hears of it. So the item's end is looked up, once.
        """
        if held.handler.form is not Form.REMOTE:
            return False
        place = self._shard.layout.place(held.ref.tenant, held.ref.zone)
        how = self._shard.transact(lambda attempt: how_ended(attempt.tr, place, held.ref.item_id))
        held.job.completing = how is not How.CANCELLED
        return held.job.completing

    def write_progress(self, told: Sequence[tuple[Held, Progress]]) -> None:
        """Write what handlers have told into their items' records, which it reads with conflict. May run twice."""
        new = {(held.ref.tenant, held.ref.zone, held.ref.item_id): progress for held, progress in told}

        def body(attempt: Attempt) -> None:
            zone_by_zone(
                self._shard,
                [held.ref for held, _ in told],
                lambda zone, held: progress_steps(
                    attempt.tr,
                    zone.place,
                    [(holding, new[zone.place.tenant, zone.place.name, holding[0]]) for holding in held],
                ),
            )

        self._shard.transact(self._shard.in_turn(body))
        for held, progress in told:
            held.record.progress = progress


def _is_held(held: Held, stored: bytes | None) -> bool:
    record = None if stored is None else decode(ItemRecord, stored)
    if record is not None and record.lease_id == held.ref.lease_id:
        return True
    probe("a worker sees that an item which runs is not its own any more")
    return False


def _as_stored(held: Held) -> Running:
    ref, job = held.ref, held.job
    return Running(
        *ref.tenant,
        ref.zone,
        ref.item_id,
        ref.kind,
        job.attempt,
        held.since_us,
        held.lease_until_us,
        job.reported or held.record.progress,
    )
