"""A queue zone behaves like a dictionary of items, after any sequence of operations."""

from __future__ import annotations

import shutil
import tempfile
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fairlead.zones.layout import item_id_of
from fairlead.zones.pipelining import run_one
from fairlead.zones.queue.dead_letters import discard, listing, move_to_dead_letters, read, retry_dead_letter
from fairlead.zones.queue.items import EnqueueStatus, LeasedItem, Outcome, new_item
from fairlead.zones.queue.poison_candidates import SHARED_EXPIRIES
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
FLAGS = st.sampled_from([(False, False), (True, False), (True, True)])  # started, and ran isolated
EXPIRIES_MAX = ZoneSettings().lapses_before_alone
SLACK_US = ZoneSettings().wake_slack_ms * MS


@dataclass
class Modelled:
    """What the model knows of an item."""

    kind: str
    priority: int
    vesting_us: int
    unique_us: int = 0
    lease_id: bytes = b""
    expiries: int = 0
    errors: int = 0
    ran_isolated: bool = False
    started: bool = False


class QueueZoneMachine(RuleBasedStateMachine):
    """One zone beside its model: present items, dead letters, retained ids."""

    engine = "memory"

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        clock = ManualClock()
        self.world = World(open_empty(self.engine, clock, self.directory), clock)
        self.items: dict[bytes, Modelled] = {}
        self.dead_letters: dict[bytes, Modelled] = {}
        self.taken_until_us: dict[bytes, int] = {}
        self.leases: list[bytes] = [b"nobody's lease. "]

    def teardown(self) -> None:
        self.world.db.close()
        shutil.rmtree(self.directory)

    @property
    def now_us(self) -> int:
        return self.world.now_us

    # --- Enqueue ---

    @rule(name=NAMES, kind=KINDS, priority=PRIORITIES, delay_ms=DELAYS_MS, unique_ms=st.sampled_from([0, 5_000]))
    def enqueue(self, name: str | None, kind: str, priority: int, delay_ms: int, unique_ms: int) -> None:
        self.enqueue_batch([(name, kind, priority, delay_ms, unique_ms if name is not None else 0)])

    @rule(batch=st.lists(st.tuples(NAMES, KINDS, PRIORITIES, DELAYS_MS, st.just(0)), min_size=1, max_size=5))
    def enqueue_batch(self, batch: list[tuple[str | None, str, int, int, int]]) -> None:
        items, expected = [], []
        for name, kind, priority, delay_ms, unique_ms in batch:
            item = new_item(kind, given_id=name, priority=priority, delay_ms=delay_ms, unique_ms=unique_ms)
            item_id = self.world.new_id() if name is None else item_id_of(name)
            items.append((item_id, item))
            expected.append(self.enqueue_in_model(item_id, item))
        results = self.world.run(lambda tr: run_one(self.world.zone.enqueue_op(tr, items, now_us=self.now_us)))
        assert [status for _, status in results] == expected

    def enqueue_in_model(self, item_id: bytes, item: Any) -> EnqueueStatus:
        if item_id in self.items:
            return EnqueueStatus.PRESENT
        if item_id in self.dead_letters:
            return EnqueueStatus.DEAD_LETTER
        if self.taken_until_us.get(item_id, 0) > self.now_us:
            return EnqueueStatus.COMPLETED
        vesting_us = self.now_us + item.delay_us
        self.items[item_id] = Modelled(item.kind, item.priority, vesting_us, item.unique_us)
        return EnqueueStatus.ENQUEUED

    # --- Time ---

    @rule(duration_us=st.sampled_from([1, 5 * MS, SECOND, LEASE_US - 1, LEASE_US, 70 * SECOND]))
    def time_passes(self, duration_us: int) -> None:
        self.world.pass_us(duration_us)

    # --- Taking items ---

    @rule(items_max=st.integers(1, 5), kinds=CAPACITIES)
    def dequeue(self, items_max: int, kinds: dict[str, int]) -> None:
        expected = self.dequeue_in_model(items_max, dict(kinds))
        held = self.world.dequeue(items_max, kinds)
        assert [(item.id, item.isolated) for item in held] == expected
        self.hold(held)

    def dequeue_in_model(self, items_max: int, left: dict[str, int]) -> list[tuple[bytes, bool]]:
        """Choose candidates by capacity, then lease, dead-letter or skip each; repeat if one was skipped."""
        queue = deque(self.vested())
        taken: list[tuple[bytes, bool]] = []
        passed = True
        while passed:
            passed = False
            for item_id in self.candidates(queue, items_max - len(taken), left):
                item = self.items[item_id]
                expiries = item.expiries + item.started
                if (item.lease_id and item.ran_isolated) or expiries >= EXPIRIES_MAX + SHARED_EXPIRIES:
                    self.dead_letters[item_id] = self.items.pop(item_id)
                    left[item.kind] += 1
                elif expiries >= EXPIRIES_MAX and any(run_one for _, run_one in taken):
                    left[item.kind] += 1
                    passed = True
                else:
                    item.expiries, item.started = expiries, False
                    taken.append((item_id, expiries >= EXPIRIES_MAX))
        return taken

    def candidates(self, queue: deque[bytes], count: int, left: dict[str, int]) -> list[bytes]:
        """Take the next items that fit the capacity out of the queue, and those before them."""
        found: list[bytes] = []
        while queue and len(found) < count:
            item_id = queue.popleft()
            kind = self.items[item_id].kind
            if left.get(kind, 0) > 0:
                left[kind] -= 1
                found.append(item_id)
        return found

    def hold(self, held: list[LeasedItem]) -> None:
        for leased in held:
            item = self.items[leased.id]
            item.lease_id, item.vesting_us = leased.record.lease_id, self.now_us + LEASE_US
            self.leases.append(item.lease_id)

    @precondition(lambda self: self.vested())
    @rule(which=WHICH)
    def obtain_lease(self, which: int) -> None:
        item_id = self.vested()[which % len(self.vested())]
        item = self.items[item_id]
        item.expiries += item.started
        item.started = False
        item.lease_id, item.vesting_us = self.world.lease(item_id), self.now_us + LEASE_US
        self.leases.append(item.lease_id)

    @rule(items_max=st.integers(1, 5))
    def process(self, items_max: int) -> None:
        """What a manager does; in the model, processing a vested pointer is a dequeue."""
        due = bool(self.world.scan())
        expected = self.dequeue_in_model(items_max, dict(ANY)) if due else []
        results = self.world.process(items_max=items_max)
        assert all(result.outcome in (PointerOutcome.SERVED, PointerOutcome.DELETED) for result in results)
        held = [item for result in results for item in result.items]
        assert [(item.id, item.isolated) for item in held] == expected
        self.hold(held)

    # --- What holders do ---

    @precondition(lambda self: self.items)
    @rule(which=WHICH, lease=WHICH, own=st.booleans())
    def complete(self, which: int, lease: int, own: bool) -> None:
        item_id, lease_id, expected = self.someone(which, lease, own)
        outcomes = self.world.run(
            lambda tr: run_one(self.world.zone.complete_op(tr, [(item_id, lease_id)], now_us=self.now_us, ended=[]))
        )
        assert outcomes == [expected]
        if expected is Outcome.DONE:
            item = self.items.pop(item_id)
            if item.unique_us and lease_id is not None:
                self.taken_until_us[item_id] = self.now_us + item.unique_us

    @precondition(lambda self: self.items)
    @rule(which=WHICH)
    def cancel(self, which: int) -> None:
        item_id = sorted(self.items)[which % len(self.items)]
        self.world.run(lambda tr: self.world.zone.complete(tr, item_id, now_us=self.now_us))
        del self.items[item_id]

    @precondition(lambda self: self.items)
    @rule(which=WHICH, lease=WHICH, own=st.booleans(), lease_us=st.sampled_from([SECOND, LEASE_US]), flags=FLAGS)
    def extend(self, which: int, lease: int, own: bool, lease_us: int, flags: tuple[bool, bool]) -> None:
        started, ran_isolated = flags
        item_id, lease_id, expected = self.someone(which, lease, own)
        outcomes = self.world.run(
            lambda tr: run_one(
                self.world.zone.extend_op(
                    tr,
                    [(item_id, lease_id)],
                    lease_us=lease_us,
                    now_us=self.now_us,
                    started=started,
                    ran_isolated=ran_isolated,
                )
            )
        )
        assert outcomes == [expected]
        if expected is Outcome.DONE:
            self.items[item_id].vesting_us = self.now_us + lease_us
            self.items[item_id].started |= started
            self.items[item_id].ran_isolated |= ran_isolated

    @precondition(lambda self: self.items)
    @rule(which=WHICH, lease=WHICH, own=st.booleans(), delay_ms=DELAYS_MS, failed=st.booleans())
    def requeue(self, which: int, lease: int, own: bool, delay_ms: int, failed: bool) -> None:
        item_id, lease_id, expected = self.someone(which, lease, own)
        errors = self.items[item_id].errors + 1 if failed else None
        outcome = self.world.run(
            lambda tr: run_one(
                self.world.zone.requeue_op(
                    tr, item_id, lease_id, delay_us=delay_ms * MS, now_us=self.now_us, error_count=errors
                )
            )
        )
        assert outcome is expected
        if expected is Outcome.DONE:
            item = self.items[item_id]
            item.expiries = 0 if failed or item.started else item.expiries
            item.lease_id, item.started, item.ran_isolated = b"", False, False
            item.vesting_us = self.now_us + delay_ms * MS
            item.errors = item.errors if errors is None else errors

    def someone(self, which: int, lease: int, own: bool) -> tuple[bytes, bytes, Outcome]:
        """Choose an item, and its own lease or any other that ever was."""
        item_id = sorted(self.items)[which % len(self.items)]
        held_under = self.items[item_id].lease_id
        lease_id = held_under if own and held_under else self.leases[lease % len(self.leases)]
        return item_id, lease_id, Outcome.DONE if lease_id == held_under else Outcome.LEASE_LOST

    # --- Dead letters ---

    @precondition(lambda self: self.items)
    @rule(which=WHICH)
    def dead_letter(self, which: int) -> None:
        item_id = sorted(self.items)[which % len(self.items)]
        record = self.world.record(item_id)
        assert record is not None
        self.world.run(
            lambda tr: move_to_dead_letters(
                tr,
                self.world.zone.location,
                item_id,
                record,
                reason="error",
                error="",
                traceback="",
                now_us=self.now_us,
            )
        )
        self.dead_letters[item_id] = self.items.pop(item_id)

    @precondition(lambda self: self.dead_letters)
    @rule(which=WHICH, keep=st.booleans())
    def decide_what_becomes_of_a_buried_item(self, which: int, keep: bool) -> None:
        item_id = sorted(self.dead_letters)[which % len(self.dead_letters)]
        item = self.dead_letters.pop(item_id)

        def decide(tr: Any) -> None:
            location = self.world.zone.location
            dead_letter = read(tr, location, item_id)
            assert dead_letter is not None
            if not keep:
                discard(tr, location, item_id, dead_letter)
                return
            retry_dead_letter(tr, location, item_id, dead_letter, now_us=self.now_us)
            run_one(self.world.zone.wake_op(tr, earliest_us=self.now_us, now_us=self.now_us))

        self.world.run(decide)
        if keep:
            self.items[item_id] = Modelled(item.kind, item.priority, self.now_us, item.unique_us)

    # --- What must hold after every step ---

    def vested(self) -> list[bytes]:
        order = sorted((item.priority, item.vesting_us, item_id) for item_id, item in self.items.items())
        return [item_id for _, vesting_us, item_id in order if vesting_us <= self.now_us]

    @invariant()
    def peek_shows_what_has_vested_in_order(self) -> None:
        assert self.world.vested_ids() == self.vested()

    @invariant()
    def every_record_says_what_happened_to_it(self) -> None:
        for item_id, item in self.items.items():
            record = self.world.record(item_id)
            assert record is not None
            assert Modelled(record.kind, record.priority, record.vesting_us, record.unique_us, record.lease_id,
                            record.expiry_count, record.error_count, record.ran_isolated,
                            record.started) == item  # fmt: skip

    @invariant()
    def counts_equal_the_items(self) -> None:
        counted: dict[str, int] = {}
        for item in self.items.values():
            counted[item.kind] = counted.get(item.kind, 0) + 1
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
        assert sorted(entry for entry in entries if entry is not None) == sorted(
            (item.priority, item.vesting_us, item_id) for item_id, item in self.items.items()
        )

    @invariant()
    def the_pointer_vests_in_time(self) -> None:
        """Except if the zone has items of a kind that is unknown here: then the pointer may rest until the recheck."""
        if not self.items:
            return
        pointer = self.world.pointer()
        assert pointer is not None
        earliest_us = min(item.vesting_us for item in self.items.values())
        rests = any(item.kind == "fax" and item.vesting_us <= pointer.vesting_us for item in self.items.values())
        late_us = PAUSE_US if rests else max(SLACK_US, THROTTLE_US)
        assert pointer.vesting_us <= max(earliest_us, self.now_us) + late_us

    @invariant()
    def the_grave_holds_what_was_buried(self) -> None:
        shown = self.world.run(lambda tr: list(listing(tr, self.world.layout, items_max=1_000)))
        assert {item.id for item in shown} == set(self.dead_letters)

    @invariant()
    def nothing_else_is_stored_in_the_zone(self) -> None:
        keys = self.world.zone.location.keys
        stored = [key for key, _ in self.world.of_items() if not key.startswith(keys.retained_id(b"")[:-2])]
        assert len(stored) == 2 * len(self.items) + len(self.dead_letters) + len(self.world.count())


class EmbeddedQueueZoneMachine(QueueZoneMachine):
    """The same on the embedded engine."""

    engine = "embedded"


TestQueueZoneInMemory = QueueZoneMachine.TestCase
TestQueueZoneInMemory.settings = settings(max_examples=60, stateful_step_count=40)
TestQueueZoneEmbedded = EmbeddedQueueZoneMachine.TestCase
TestQueueZoneEmbedded.settings = settings(max_examples=8, stateful_step_count=40)
