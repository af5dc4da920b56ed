"""Replays of all live runs of a kind of workflows, or of its dead letters, read-only: whether code fits them.

Each run is read as plain data first, and then replayed where no store can be used; see `workflows.read_only_replay`.
One run is in memory at a time. One that cannot be read is reported, and the next one is replayed.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import NamedTuple, NoReturn

from fairlead.actors.execution.in_flight import HeldItem
from fairlead.actors.execution.job import Job
from fairlead.actors.handlers import Handler, describe
from fairlead.actors.messages import ItemRef
from fairlead.app import App
from fairlead.argument_checks import check_known
from fairlead.queries.items_of_kind import ItemOfKind, items_of_kind
from fairlead.queries.per_shard import ShardResult, query_home, query_store
from fairlead.shards import Shards
from fairlead.workflows.read_only_replay import ReplayOutcome, StoreInReplay, replay_recorded
from fairlead.workflows.workflow_kind import WorkflowKind
from fairlead.zones.engines import Reader
from fairlead.zones.errors import QueueError
from fairlead.zones.external.names import store_of_participant
from fairlead.zones.external.store import ExternalStore
from fairlead.zones.layout import DEFAULT_ZONE, ShardLayout, Tenant
from fairlead.zones.queue import stored_item
from fairlead.zones.queue.dead_letter_search import DeadLetterFilter, DeadLetterPage, search
from fairlead.zones.records import DeadLetterRecord, ItemRecord, decode
from fairlead.zones.shard import Shard
from fairlead.zones.transaction_runner import Attempt
from fairlead.zones.workflow.step_log import StoredRun, read_participant, read_run

DEAD_LETTERS_PAGE = 100
READS_MAX = 3  # Of a run that goes on while it is read.


class NotAWorkflow(QueueError):
    """The kind has a handler that is no workflow: it has no steps to replay.

    Do: name a kind that is registered by `@app.workflow`.
    """

    message = "the kind is no workflow"


class ParticipantAway(QueueError):
    """A workflow has done steps on another shard, which cannot be read now. So the workflow cannot be replayed.

    Do: make that shard available, and repeat the replay.
    """

    message = "a shard on which the workflow has done steps cannot be read"


class ReplayedRun(NamedTuple):
    """A run, and whether the code fits it.

    `version`: of the code that began it. `error`: what differs, or why the run cannot be read.
    """

    shard: str
    tenant: Tenant
    zone: str
    item_id: bytes
    version: int | None
    outcome: ReplayOutcome
    error: Exception | None


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


def replay_runs(app: App, kind: str, shard: Shard, *, dead_letters: bool = False) -> Iterator[ReplayedRun]:
    """Replay the runs of a kind that have recorded steps, and whose items lie in the queues of a shard.

    A run that goes on at each of three reads is left out, as is one that ends meanwhile.

    Args:
      dead_letters: replay those instead. One that is undone to its end has recorded nothing any more.

    Raises:
      UnknownKind, NotAWorkflow: see `workflow_of`.
      One of the errors of the stores: the shard cannot be read.
    """
    handler, workflow = workflow_of(app, kind)
    shards = app.shards
    for item in _dead_letters(shard, kind) if dead_letters else items_of_kind(shard, kind):
        read = _RunReader(shards, app.externals, shard, item, is_dead=dead_letters)
        try:
            recorded = read.run()
        except ParticipantAway as away:
            location = item.location
            yield ReplayedRun(
                shard.name, location.tenant, location.name, item.item_id, None, ReplayOutcome.UNREADABLE, away
            )
            continue
        if recorded is None:
            continue
        held = _held(shard, item, recorded, handler)
        with app.using(_NoStores(shards), clock=app.clock, random=app.random):
            replayed = replay_recorded(workflow, held, recorded.stored, shard)
        head = recorded.stored.head
        version = workflow.version if head is None else head.version
        ref = held.ref
        yield ReplayedRun(shard.name, ref.tenant, ref.zone, ref.item_id, version, replayed.outcome, replayed.error)


def _dead_letters(shard: Shard, kind: str) -> Iterator[ItemOfKind]:
    """Yield where the dead letters of a kind lie, oldest first, a page per transaction."""
    criteria = DeadLetterFilter(kind=kind)
    next_key: bytes | None = b""
    while next_key is not None:
        page = shard.transact(partial(_search, layout=shard.layout, criteria=criteria, next_key=next_key))
        yield from (ItemOfKind(shard.layout.location(each.tenant, each.zone), each.id) for each in page.items)
        next_key = page.next_key


def _search(attempt: Attempt, *, layout: ShardLayout, criteria: DeadLetterFilter, next_key: bytes) -> DeadLetterPage:
    return search(attempt.tr, layout, criteria, items_max=DEAD_LETTERS_PAGE, next_key=next_key)


def _held(shard: Shard, item: ItemOfKind, recorded: _Recorded, handler: Handler) -> HeldItem:
    """Return an item as a worker holds it, without a store."""
    record, location = recorded.record, item.location
    ref = ItemRef(
        shard.name, location.tenant, location.name, item.item_id, record.lease_id, record.kind, isolated=False
    )
    return HeldItem(ref, record, handler, Job(None, ref, record, recorded.payload), shard.clock.now_us())


class _RunReader:
    """Reads one run. `is_dead`: its item is a dead letter."""

    def __init__(
        self,
        shards: Shards,
        externals: Mapping[str, ExternalStore],
        shard: Shard,
        item: ItemOfKind,
        *,
        is_dead: bool,
    ) -> None:
        self._shards = shards
        self._externals = externals
        self._shard = shard
        self._item = item
        self._is_dead = is_dead

    def run(self) -> _Recorded | None:
        """Read a run until it does not change meanwhile; None: it has recorded nothing, it has ended, or it goes on.

        Raises:
          ParticipantAway: see there.
        """
        for _ in range(READS_MAX):
            recorded = self._home()
            if recorded is None:
                return None
            stored, run = recorded.stored, recorded.record.run_of(self._item.item_id)
            at_home = dict(stored.entries)
            for tenant in stored.participants:
                away = self._read_participant(tenant, run, stored)
                if away.error is not None:
                    raise ParticipantAway(shard=away.shard, tenant=str(tenant), reason=away.sentence)
            again = self._home()
            if again is None:
                return None
            if (again.stored.head, again.stored.entries) == (stored.head, at_home):
                return recorded
        return None

    def _read_participant(self, participant: Tenant, run: bytes, stored: StoredRun) -> ShardResult[None]:
        """Add the entries that a participant keeps."""
        store = store_of_participant(participant)
        if store is None:
            return query_home(
                self._shards, participant, partial(_read_entries, tenant=participant, run=run, stored=stored)
            )
        return query_store(
            self._externals, store, lambda steps: stored.entries.update(steps.entries(run, stored.segment))
        )

    def _home(self) -> _Recorded | None:
        """Read an item, its payload, and the log at its home; None: there is no item, or it has recorded nothing."""
        found = self._shard.transact(lambda attempt: self._read_item(attempt.tr))
        if found is None:
            return None
        record, payload = found
        item, stored, begin = self._item, StoredRun(), b""
        read = partial(_read_page, item=item, run=record.run_of(item.item_id), stored=stored)
        while True:
            begin = self._shard.transact(partial(read, begin=begin))
            if not begin:
                return _Recorded(record, payload, stored)

    def _read_item(self, tr: Reader) -> tuple[ItemRecord, bytes] | None:
        location, item_id = self._item.location, self._item.item_id
        key = location.keys.dead_letter(item_id) if self._is_dead else location.keys.item(item_id)
        value = tr.snapshot.get(key).value
        if value is None:
            return None
        if self._is_dead:
            dead_letter = decode(DeadLetterRecord, value)
            record = None if dead_letter is None else dead_letter.item
        else:
            record = decode(ItemRecord, value)
        if record is None or not record.keeps_run:
            return None
        return record, stored_item.read_payload(tr, location, item_id, record)


def _read_entries(shard: Shard, *, tenant: Tenant, run: bytes, stored: StoredRun) -> None:
    """Add the entries that a participant keeps."""
    keys = shard.layout.location(tenant, DEFAULT_ZONE).keys.tenant
    begin: bytes | None = None
    while begin != b"":
        begin = shard.transact(
            lambda attempt: read_participant(attempt.tr, keys, run, stored, begin=begin or b"")  # noqa: B023
        )


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
