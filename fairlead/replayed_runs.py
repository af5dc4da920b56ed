"""Replays of all live runs of a kind of workflows, read-only: whether this application's code fits them.

Each run is read as plain data first, and then replayed where no store can be used; see `workflows.read_only_replay`.
One run is in memory at a time.
"""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple, NoReturn

from fairlead.actors.execution.in_flight import HeldItem
from fairlead.actors.execution.job import Job
from fairlead.actors.handlers import Handler, UnfitCode, describe
from fairlead.actors.messages import ItemRef
from fairlead.app import App
from fairlead.argument_checks import check_known
from fairlead.queries.items_of_kind import ItemOfKind, items_of_kind
from fairlead.shards import Shards
from fairlead.workflows.read_only_replay import ReplayOutcome, StoreInReplay, replay_recorded
from fairlead.workflows.workflow_kind import WorkflowKind
from fairlead.zones.engines import Reader
from fairlead.zones.errors import QueueError
from fairlead.zones.layout import DEFAULT_ZONE, Tenant
from fairlead.zones.queue import stored_item
from fairlead.zones.records import ItemRecord, decode
from fairlead.zones.shard import Shard
from fairlead.zones.transaction_runner import Attempt
from fairlead.zones.workflow.step_log import StoredRun, read_participant, read_run

READS_MAX = 3  # Of a run that goes on while it is read.


class NotAWorkflow(QueueError):
    """The kind has a handler that is no workflow: it has no steps to replay.

    Do: name a kind that is registered by `@app.workflow`.
    """

    message = "the kind is no workflow"


class ReplayedRun(NamedTuple):
    """A live run, and whether the code fits it. `version`: of the code that began it; `error`: what differs."""

    shard: str
    tenant: Tenant
    zone: str
    item_id: bytes
    version: int
    outcome: ReplayOutcome
    error: UnfitCode | None


class _Recorded(NamedTuple):
    """A run as it is recorded, participants included."""

    record: ItemRecord
    payload: bytes
    stored: StoredRun


def workflow_of(app: App, kind: str) -> tuple[Handler, WorkflowKind]:
    """Return the handler and the workflow of a kind.

    Raises:
      UnknownKind: the application has no handler of it.
      NotAWorkflow: its handler is none.
    """
    check_known(app.registry, kind)
    handler = app.registry.handlers[kind]
    if not isinstance(handler.function, WorkflowKind):
        raise NotAWorkflow(kind=kind, handler=describe(handler.function))
    return handler, handler.function


def replay_runs(app: App, kind: str, shard: Shard) -> Iterator[ReplayedRun]:
    """Replay the runs of a kind that have recorded steps, and whose items lie in the queues of a shard.

    A run that goes on at each of three reads is left out, as is one that ends meanwhile.

    Raises:
      UnknownKind, NotAWorkflow: see `workflow_of`.
      One of the errors of the stores: the shard, or that of a participant, cannot be read.
    """
    handler, workflow = workflow_of(app, kind)
    shards = app.shards
    for item in items_of_kind(shard, kind):
        recorded = _read(shards, shard, item)
        if recorded is None:
            continue
        held = _held(shard, item, recorded, handler)
        with app.using(_NoStores(shards), clock=app.clock, random=app.random):
            replayed = replay_recorded(workflow, held, recorded.stored, shard)
        head = recorded.stored.head
        version = workflow.version if head is None else head.version
        ref = held.ref
        yield ReplayedRun(shard.name, ref.tenant, ref.zone, ref.item_id, version, replayed.outcome, replayed.error)


def _held(shard: Shard, item: ItemOfKind, recorded: _Recorded, handler: Handler) -> HeldItem:
    """Return an item as a worker holds it, without a store."""
    record, location = recorded.record, item.location
    ref = ItemRef(
        shard.name, location.tenant, location.name, item.item_id, record.lease_id, record.kind, isolated=False
    )
    return HeldItem(ref, record, handler, Job(None, ref, record, recorded.payload), shard.clock.now_us())


def _read(shards: Shards, shard: Shard, item: ItemOfKind) -> _Recorded | None:
    """Read a run until it does not change meanwhile; None: it has recorded nothing, it has ended, or it goes on."""
    for _ in range(READS_MAX):
        recorded = _read_home(shard, item)
        if recorded is None:
            return None
        stored, run = recorded.stored, recorded.record.run_of(item.item_id)
        at_home = dict(stored.entries)
        for tenant in stored.participants:
            there = shards.home(tenant)
            keys = there.layout.location(tenant, DEFAULT_ZONE).keys.tenant
            begin: bytes | None = None
            while begin != b"":
                begin = there.transact(
                    lambda attempt: read_participant(attempt.tr, keys, run, stored, begin=begin or b"")  # noqa: B023
                )
        again = _read_home(shard, item)
        if again is None:
            return None
        if (again.stored.head, again.stored.entries) == (stored.head, at_home):
            return recorded
    return None


def _read_home(shard: Shard, item: ItemOfKind) -> _Recorded | None:
    """Read an item, its payload, and the log at its home; None: there is no item, or it has recorded nothing."""
    found = shard.transact(lambda attempt: _read_item(attempt.tr, item))
    if found is None:
        return None
    record, payload = found
    run, stored, begin = record.run_of(item.item_id), StoredRun(), b""
    while True:
        begin = shard.transact(partial(_read_page, item=item, run=run, stored=stored, begin=begin))
        if not begin:
            return _Recorded(record, payload, stored)


def _read_item(tr: Reader, item: ItemOfKind) -> tuple[ItemRecord, bytes] | None:
    value = tr.snapshot.get(item.location.keys.item(item.item_id)).value
    record = None if value is None else decode(ItemRecord, value)
    if record is None or not record.keeps_run:
        return None
    return record, stored_item.read_payload(tr, item.location, item.item_id, record)


def _read_page(attempt: Attempt, *, item: ItemOfKind, run: bytes, stored: StoredRun, begin: bytes) -> bytes:
    return read_run(attempt.tr, item.location, run, stored, begin=begin)


class _NoStores(Shards):
    """The shards of an application whose code is replayed: they have names, and cannot be opened."""

    def __init__(self, shards: Shards) -> None:
        self.urls = shards.urls
        self._named = shards

    def __getitem__(self, name: str) -> NoReturn:
        """Refuse.

        Raises:
          StoreInReplay: always.
        """
        raise StoreInReplay(shard=name)

    def home(self, tenant: Tenant) -> NoReturn:
        """Refuse.

        Raises:
          StoreInReplay: always.
        """
        raise StoreInReplay(shard=self._named.home_name(tenant))

    def errors(self) -> set[type[Exception]]:
        """Return none: no store is open."""
        return set()

    def close(self) -> None:
        """Close nothing."""
