"""The promises of workflows about what arrives: signals are taken once, in order, and nobody waits beside them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from fairlead.simulation.oracles.oracle import Oracle
from fairlead.simulation.replica import ItemName, ParsedCommit, RunKey, ShardReplica, ZoneName
from fairlead.simulation.workflow_ledger import WorkflowLedger, WorkflowWait
from fairlead.simulation.world import World
from fairlead.zones import keyspace
from fairlead.zones.queue.items import unpack_payload
from fairlead.zones.workflow.children import WAKE_SPACING_US, child_wait_name
from fairlead.zones.workflow.locks import LOCK_SIGNAL
from fairlead.zones.workflow.run_records import StepKind, StepState, decode_entry
from fairlead.zones.workflow.signals import wait_name

_ENTRY = 3  # The number of the entries' keys below a step log.
_WAIT = "wait_for "


class _Stored(NamedTuple):
    """A signal that is stored: its token, and when it was committed, in true time."""

    token: str
    stored_us: int


class NobodyWaitsBesideArrivals(Oracle):
    """An item that waits for a signal, or for a child, vests now if that is there.

    Args:
      ahead_us_max: the most by which a sender's clock may be ahead: it does not wake an item that vests by its time.
    """

    promise = "no workflow waits beside what has arrived for it"

    def __init__(self, world: World, ahead_us_max: int) -> None:
        super().__init__(world)
        self._ahead_us_max = ahead_us_max
        self._arrived: dict[bytes, dict[tuple[Any, ...], str]] = {}  # By run: keys, and what a record calls them.
        self._items: dict[bytes, ItemName] = {}

    def on_commit(self, parsed: ParsedCommit) -> None:
        """See `Oracle`."""
        touched = set()
        for changed in parsed.run_keys:
            name = _waited_name(changed)
            if name is not None:
                run = changed.path[1]
                touched.add(run)
                arrived = self._arrived.setdefault(run, {})
                if changed.after is None:
                    arrived.pop(tuple(changed.path), None)
                else:
                    arrived[tuple(changed.path)] = name
        for change in parsed.items:
            if change.after is not None and change.after.keeps_run:
                run = change.after.run_of(change.item.item_id)
                self._items[run] = change.item
                touched.add(run)
        self._check(parsed, touched)

    def _check(self, parsed: ParsedCommit, runs: Iterable[bytes]) -> None:
        latest_us = self.world.now_us() + self._ahead_us_max + WAKE_SPACING_US
        for run in runs:
            item = self._items.get(run)
            if item is None or not self._arrived.get(run):
                continue
            record = parsed.shard.zones[ZoneName(item.tenant, item.zone)].items.get(item.item_id)
            if record is None or record.lease_id or record.run_of(item.item_id) != run:
                continue
            beside = set(self._arrived[run].values()) & set(record.waits_for)
            if beside and record.vesting_us > latest_us:
                wait_us = record.vesting_us - self.world.now_us()
                self.report_violation(f"{item} waits {wait_us} us more beside {sorted(beside)}")


class SignalsAreTakenOnce(Oracle):
    """A signal is stored once, and taken by one wait at most: the oldest first. A wait in vain has missed none.

    A signal whose transaction was acknowledged was stored.
    """

    promise = "a signal is taken at most once, in order, and none is missed"

    def __init__(self, world: World, ledger: WorkflowLedger) -> None:
        super().__init__(world)
        self._ledger = ledger
        self._stored: dict[tuple[bytes, str], dict[tuple[Any, ...], _Stored]] = {}
        self._tokens: set[str] = set()
        self._taken: set[str] = set()
        self._decided: set[tuple[Any, ...]] = set()  # Entries of waits that are over.
        self._leased_us: dict[bytes, int] = {}  # By run: the true time of its item's last lease.

    def on_commit(self, parsed: ParsedCommit) -> None:
        """See `Oracle`."""
        for change in parsed.items:
            before, after = change.before, change.after
            if after is not None and after.lease_id and (before is None or before.lease_id != after.lease_id):
                self._leased_us[after.run_of(change.item.item_id)] = self.world.now_us()
        for changed in parsed.run_keys:
            if changed.path[0] == keyspace.STEP_LOG and changed.path[2] == _ENTRY and changed.after is not None:
                self._check_entry(changed, changed.after)
        for changed in parsed.run_keys:
            if changed.path[0] == keyspace.SIGNAL and not changed.path[2].startswith(LOCK_SIGNAL):
                self._note(parsed.by, changed)  # The signals that hand locks over carry nothing.

    def at_end(self, shards: Sequence[ShardReplica]) -> None:
        """See `Oracle`."""
        for token in self._ledger.sent:
            if token not in self._tokens:
                self.report_violation(f"signal {token} was acknowledged and never was there")

    def _note(self, by: str, changed: RunKey) -> None:
        stored = self._stored.setdefault((changed.path[1], changed.path[2]), {})
        key = tuple(changed.path)
        if changed.after is None:
            stored.pop(key, None)
            return
        token = unpack_payload(changed.after)
        if token in self._tokens:
            self.report_violation(f"{by} stores signal {token} again")
        if key in stored:
            self.report_violation(f"{by} stores signal {token} in the place of {stored[key]}")
        self._tokens.add(token)
        stored[key] = _Stored(token, self.world.now_us())

    def _check_entry(self, changed: RunKey, value: bytes) -> None:
        """Check the entry of a wait for a signal, when it gets its answer. The signal goes in the same commit."""
        _, run, _, segment, name, occurrence = changed.path
        entry = decode_entry(value)
        key = tuple(changed.path)
        if entry is None or entry.kind is not StepKind.WAIT or not name.startswith(_WAIT) or key in self._decided:
            return
        if entry.state is StepState.WAITING:
            return
        self._decided.add(key)
        signal = name.removeprefix(_WAIT)
        token = unpack_payload(entry.result) if entry.state is StepState.DONE else None
        oldest = next(iter(self._stored.get((run, signal), {}).values()), None)
        wait = WorkflowWait(run.hex(), segment, signal, occurrence)
        if token is not None:
            if token in self._taken or oldest is None or oldest.token != token:
                self.report_violation(f"{wait} takes {token}, and the oldest signal is {oldest}")
            self._taken.add(token)
            return
        since_us = max(self._ledger.waits_began_us[wait], self._leased_us.get(run, 0))
        if oldest is not None and oldest.stored_us < since_us:
            self.report_violation(f"{wait} began at {since_us}, and has missed {oldest}")


def _waited_name(changed: RunKey) -> str | None:
    """Return how the record of an item that waits names what a key holds; None: nobody waits for that."""
    if changed.path[0] == keyspace.SIGNAL:
        return wait_name(changed.path[2])
    if changed.path[0] == keyspace.CHILD_RESULT:
        return child_wait_name(changed.path[2], changed.path[3])
    return None
