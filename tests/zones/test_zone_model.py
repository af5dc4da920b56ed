"""A queue zone behaves like its sequential model: whatever is done to it, in whatever order."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fairlead.simulation import zone_model as model
from fairlead.simulation.zone_model import Item, Zone, ZoneOperation, item_of
from fairlead.zones.layout import item_id_of
from fairlead.zones.pipelining import run_one
from fairlead.zones.queue.dead_letters import discard, listing, move_to_dead_letters, read, retry_dead_letter
from fairlead.zones.queue.items import LeasedItem, Outcome, new_item
from fairlead.zones.settings import ZoneSettings
from fairlead.zones.top_level.process_pointers import PointerOutcome
from tests.clocks import ManualClock
from tests.zones.conftest import open_empty
from tests.zones.world import ANY, LEASE_US, MS, PAUSE_US, SECOND, THROTTLE_US, World

NAMES = st.sampled_from(["a", "b", "c", None])
KINDS = st.sampled_from(["mail", "index", "fax"])
PRIORITIES = st.sampled_from([0, 100, 255])
DELAYS_MS = st.sampled_from([0, 0, 0, 3, 40, 2_000, 20_000])
WHICH = st.integers(0, 10**6)
CAPACITIES = st.sampled_from([ANY, {"mail": 1, "index": 0}, {"mail": 100}, {}])
MARKS = st.sampled_from([(False, False), (True, False), (True, True)])  # started, and ran isolated
CANDIDATE_AFTER = ZoneSettings().expiries_before_isolation
SLACK_US = ZoneSettings().wake_slack_ms * MS
NOBODYS_LEASE = b"nobody's lease. "


class QueueZoneMachine(RuleBasedStateMachine):
    """One zone beside its model. Each rule does the same to both, and compares their answers."""

    engine = "memory"

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        clock = ManualClock()
        self.world = World(open_empty(self.engine, clock, self.directory), clock)
        self.model = Zone()
        self.leases: list[bytes] = [NOBODYS_LEASE]

    def teardown(self) -> None:
        self.world.db.close()
        shutil.rmtree(self.directory)

    @property
    def now_us(self) -> int:
        return self.world.now_us

    def expect(self, operation: ZoneOperation) -> Any:
        """Return the model's answer to an operation, and keep the state to which it leads."""
        answer, self.model = operation.on(self.model)
        return answer

    # --- Enqueue ---

    @rule(name=NAMES, kind=KINDS, priority=PRIORITIES, delay_ms=DELAYS_MS, taken_ms=st.sampled_from([0, 5_000]))
    def enqueue(self, name: str | None, kind: str, priority: int, delay_ms: int, taken_ms: int) -> None:
        self.enqueue_batch([(name, kind, priority, delay_ms, taken_ms if name is not None else 0)])

    @rule(batch=st.lists(st.tuples(NAMES, KINDS, PRIORITIES, DELAYS_MS, st.just(0)), min_size=1, max_size=5))
    def enqueue_batch(self, batch: list[tuple[str | None, str, int, int, int]]) -> None:
        items, expected = [], []
        for name, kind, priority, delay_ms, taken_ms in batch:
            item = new_item(kind, item_id=name, priority=priority, delay=delay_ms / 1000, unique_for=taken_ms / 1000)
            item_id = self.world.new_id() if name is None else item_id_of(name)
            items.append((item_id, item))
            expected.append(
                self.expect(
                    model.Enqueue(
                        item_id,
                        named=name is not None,
                        kind=kind,
                        payload=item.payload,
                        priority=priority,
                        delay_us=item.delay_us,
                        unique_us=item.unique_us,
                        now_us=self.now_us,
                    )
                )
            )
        results = self.world.run(lambda tr: run_one(self.world.zone.enqueue_op(tr, items, now_us=self.now_us)))
        assert [status for _, status in results] == expected

    # --- Time ---

    @rule(duration_us=st.sampled_from([1, 5 * MS, SECOND, LEASE_US - 1, LEASE_US, 70 * SECOND]))
    def time_passes(self, duration_us: int) -> None:
        self.world.pass_us(duration_us)

    # --- Leases ---

    @rule(items_max=st.integers(1, 5), kinds=CAPACITIES)
    def dequeue(self, items_max: int, kinds: dict[str, int]) -> None:
        self.check_dequeued(self.world.dequeue(items_max, kinds), items_max, kinds)

    @rule(items_max=st.integers(1, 5))
    def process_pointer(self, items_max: int) -> None:
        """As a manager does. In the model this is a dequeue, if the zone's pointer has vested."""
        due = bool(self.world.scan())
        results = self.world.process(items_max=items_max)
        assert all(result.outcome in (PointerOutcome.SERVED, PointerOutcome.DELETED) for result in results)
        leased = [item for result in results for item in result.items]
        if due:
            self.check_dequeued(leased, items_max, ANY)
        else:
            assert not leased

    def check_dequeued(self, leased: Sequence[LeasedItem], items_max: int, kinds: dict[str, int]) -> None:
        lease_id = leased[0].record.lease_id if leased else NOBODYS_LEASE
        plan = model.PlanDequeue(
            0, items_max, tuple(kinds.items()), 1, CANDIDATE_AFTER, lease_id, LEASE_US, self.now_us
        )
        assert tuple(item_of(each.id, each.record, each.record.payload) for each in leased) == self.expect(plan)
        assert [each.isolated for each in leased] == [each.record.expiry_count >= CANDIDATE_AFTER for each in leased]
        assert self.expect(model.CommitDequeue(0)) is Outcome.DONE
        self.leases += [lease_id] if leased else []

    @precondition(lambda self: self.model.vested(self.now_us))
    @rule(which=WHICH)
    def obtain_lease(self, which: int) -> None:
        item = one_of(self.model.vested(self.now_us), which)
        lease_id = self.world.lease(item.id)
        assert isinstance(self.expect(model.ObtainLease(item.id, lease_id, LEASE_US, self.now_us)), Item)
        self.leases.append(lease_id)

    # --- What holders do ---

    @precondition(lambda self: self.model.items)
    @rule(which=WHICH, lease=WHICH, own=st.booleans())
    def complete(self, which: int, lease: int, own: bool) -> None:
        item, lease_id = self.item_and_lease(which, lease, own)
        outcomes = self.world.run(
            lambda tr: run_one(self.world.zone.complete_op(tr, [(item.id, lease_id)], now_us=self.now_us, ended=[]))
        )
        assert outcomes == [self.expect(model.Complete(item.id, lease_id, self.now_us))]

    @precondition(lambda self: self.model.items)
    @rule(which=WHICH)
    def cancel(self, which: int) -> None:
        item = one_of(self.model.items, which)
        self.world.run(lambda tr: self.world.zone.complete(tr, item.id, now_us=self.now_us))
        assert self.expect(model.Complete(item.id, None, self.now_us)) is Outcome.DONE

    @precondition(lambda self: self.model.items)
    @rule(which=WHICH, lease=WHICH, own=st.booleans(), lease_us=st.sampled_from([SECOND, LEASE_US]), mark=MARKS)
    def extend(self, which: int, lease: int, own: bool, lease_us: int, mark: tuple[bool, bool]) -> None:
        started, ran_isolated = mark
        item, lease_id = self.item_and_lease(which, lease, own)
        outcomes = self.world.run(
            lambda tr: run_one(
                self.world.zone.extend_op(
                    tr,
                    [(item.id, lease_id)],
                    lease_us=lease_us,
                    now_us=self.now_us,
                    started=started,
                    ran_isolated=ran_isolated,
                )
            )
        )
        operation = model.ExtendLease(item.id, lease_id, lease_us, started, ran_isolated, self.now_us)
        assert outcomes == [self.expect(operation)]

    @precondition(lambda self: self.model.items)
    @rule(which=WHICH, lease=WHICH, own=st.booleans(), delay_ms=DELAYS_MS, failed=st.booleans())
    def requeue(self, which: int, lease: int, own: bool, delay_ms: int, failed: bool) -> None:
        item, lease_id = self.item_and_lease(which, lease, own)
        errors = item.error_count + 1 if failed else None
        outcome = self.world.run(
            lambda tr: run_one(
                self.world.zone.requeue_op(
                    tr, item.id, lease_id, delay_us=delay_ms * MS, now_us=self.now_us, error_count=errors
                )
            )
        )
        assert outcome is self.expect(model.Requeue(item.id, lease_id, delay_ms * MS, errors, self.now_us))

    def item_and_lease(self, which: int, lease: int, own: bool) -> tuple[Item, bytes]:
        """Choose an item, and its own lease or any other that ever was."""
        item = one_of(self.model.items, which)
        return item, item.lease_id if own and item.lease_id else self.leases[lease % len(self.leases)]

    # --- Dead letters ---

    @precondition(lambda self: self.model.items)
    @rule(which=WHICH)
    def move_to_dead_letters(self, which: int) -> None:
        item = one_of(self.model.items, which)
        record = self.world.record(item.id)
        assert record is not None
        self.world.run(
            lambda tr: move_to_dead_letters(
                tr,
                self.world.zone.location,
                item.id,
                record,
                reason="error",
                error="",
                traceback="",
                now_us=self.now_us,
            )
        )
        assert self.expect(model.MoveToDeadLetters(item.id, None)) is Outcome.DONE

    @precondition(lambda self: self.model.dead_letters)
    @rule(which=WHICH, retries=st.booleans())
    def retry_or_discard_a_dead_letter(self, which: int, retries: bool) -> None:
        item_id = one_of(self.model.dead_letters, which).id

        def decide(tr: Any) -> None:
            location = self.world.zone.location
            dead_letter = read(tr, location, item_id)
            assert dead_letter is not None
            if not retries:
                discard(tr, location, item_id, dead_letter, now_us=self.now_us)
                return
            retry_dead_letter(tr, location, item_id, dead_letter, now_us=self.now_us)
            run_one(self.world.zone.wake_op(tr, earliest_us=self.now_us, now_us=self.now_us))

        self.world.run(decide)
        operation = model.RetryDeadLetter(item_id, self.now_us) if retries else model.DiscardDeadLetter(item_id)
        assert self.expect(operation) is Outcome.DONE

    # --- What must hold after every step ---

    @invariant()
    def peek_shows_what_has_vested_in_order(self) -> None:
        assert self.world.vested_ids() == [item.id for item in self.model.vested(self.now_us)]

    @invariant()
    def every_record_is_the_item_of_the_model(self) -> None:
        for item in self.model.items:
            record = self.world.record(item.id)
            assert record is not None
            assert item_of(item.id, record, record.payload) == item

    @invariant()
    def counts_equal_the_items(self) -> None:
        counted = self.expect(model.Count())
        assert self.world.count() == counted
        depths = {
            kind: sum(
                int.from_bytes(value, "little", signed=True)
                for part in self.world.layout.parts
                for key, value in self.world.stored(part.depth(kind), part.depth(kind) + b"\x00")
            )
            for kind in ("mail", "index", "fax")
        }
        assert {kind: depth for kind, depth in depths.items() if depth} == counted

    @invariant()
    def the_index_names_every_record_once(self) -> None:
        keys = self.world.zone.location.keys
        entries = [keys.entry(key) for key, _ in self.world.stored(keys.vest_priority(0), keys.vest_end())]
        assert sorted(entry for entry in entries if entry is not None) == [
            (item.priority, item.vesting_us, item.id) for item in self.model.items
        ]

    @invariant()
    def the_pointer_vests_in_time(self) -> None:
        """Unless a kind that nobody here runs is among what is there: then it may rest until the recheck."""
        if not self.model.items:
            return
        pointer = self.world.pointer()
        assert pointer is not None
        earliest_us = min(item.vesting_us for item in self.model.items)
        rests = any(item.kind == "fax" and item.vesting_us <= pointer.vesting_us for item in self.model.items)
        late_us = PAUSE_US if rests else max(SLACK_US, THROTTLE_US)
        assert pointer.vesting_us <= max(earliest_us, self.now_us) + late_us

    @invariant()
    def the_list_of_dead_letters_names_each_of_them(self) -> None:
        shown = self.world.run(lambda tr: list(listing(tr, self.world.layout, items_max=1_000)))
        dead_letters = [item_of(each.id, each.record.item, each.record.item.payload) for each in shown]
        assert sorted(dead_letters) == list(self.model.dead_letters)

    @invariant()
    def nothing_else_is_stored_in_the_zone(self) -> None:
        keys = self.world.zone.location.keys
        stored = [key for key, _ in self.world.of_items() if not key.startswith(keys.retained_id(b"")[:-2])]
        assert len(stored) == 2 * len(self.model.items) + len(self.model.dead_letters) + len(self.world.count())


def one_of(items: Sequence[Item], which: int) -> Item:
    """Return one of the items, in the order of their ids."""
    return sorted(items, key=lambda item: item.id)[which % len(items)]


class EmbeddedQueueZoneMachine(QueueZoneMachine):
    """The same on the embedded engine."""

    engine = "embedded"


TestQueueZoneInMemory = QueueZoneMachine.TestCase
TestQueueZoneInMemory.settings = settings(max_examples=60, stateful_step_count=40)
TestQueueZoneEmbedded = EmbeddedQueueZoneMachine.TestCase
TestQueueZoneEmbedded.settings = settings(max_examples=8, stateful_step_count=40)
