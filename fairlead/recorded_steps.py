"""The steps of a workflow as they are recorded: at its home, on other shards, and in external stores.

They are read without the lease of the item, page by page. So the view of a run that goes on meanwhile may lack what was
recorded since the read began. Nothing is written, so nothing conflicts.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from fairlead.queries.per_shard import query_home, query_store
from fairlead.shards import Shards
from fairlead.workflow_explanation import signals_of
from fairlead.workflows.child_jobs import RESULT_OF
from fairlead.workflows.replay import shown
from fairlead.workflows.step_identity import id_of, step_of_call
from fairlead.zones.engines import Reader
from fairlead.zones.errors import ItemGone, PayloadDamaged
from fairlead.zones.external.names import store_of_participant
from fairlead.zones.external.store import ExternalStore
from fairlead.zones.layout import DEFAULT_ZONE, ID_BYTES, Tenant
from fairlead.zones.pipelining import run_one
from fairlead.zones.queue.items import unpack_payload
from fairlead.zones.shard import Shard
from fairlead.zones.transaction_runner import Attempt
from fairlead.zones.workflow.arrival import Receiver, receiver_op
from fairlead.zones.workflow.run_records import StepEntry, StepKind, StepState
from fairlead.zones.workflow.step_log import StepName, StoredRun, read_participant, read_run
from fairlead.zones.workflow.suspension import AwaitedChild, awaited_of

PAGES_MAX = 5  # Of 2,000 steps each, read of each tenant.
_UNDO = "undo "


@dataclass(frozen=True, slots=True)
class StepView:
    """A step of a run, as it is recorded. Times and durations in microseconds, times since the epoch.

    Attributes:
      name, occurrence: which step it is: of that name for the `occurrence`-th time, from 0 on.
      ordinal: counts the steps of a run in the order in which they began.
      kind, state: see there.
      at_us: when it was recorded in this state; `took_us`: how long it had taken by then, with all tries and waits.
      result: of a step that is done; of a damaged one, the text of the error.
      error_type, error: of a step that failed: the class and the message of its error; else empty.
      tries: failed tries, if the step has a retry policy of its own.
      until_us: how long it waits: the end of its timeout, or its next try; None: it does not wait.
      tenant: below whose keys it is recorded: the workflow's own, or one on another shard; or an external store, which
        is printed as "store NAME".
      undone_us: when its undo was recorded; None: it is not undone.
      child_id: the item that it enqueued, and whose end the workflow waits for; None: it is no call of a child.
      enqueued_id: the item that it enqueued, whether the workflow waits for it or not; None: none is known.
    """

    name: str
    occurrence: int
    ordinal: int
    kind: StepKind
    state: StepState
    at_us: int
    took_us: int
    result: Any
    error_type: str
    error: str
    tries: int
    until_us: int | None
    tenant: Tenant
    undone_us: int | None
    child_id: bytes | None
    enqueued_id: bytes | None

    @property
    def began_us(self) -> int:
        """When it began."""
        return self.at_us - self.took_us

    @property
    def kind_name(self) -> str:
        """Its kind in a word: that of a child's enqueue is "call"."""
        return "call" if self.child_id is not None and self.kind is StepKind.STEP else self.kind.name.lower()


class AwayParticipant(NamedTuple):
    """A tenant on another shard, or a store, with steps of the run, which cannot be read now. `sentence`: why not."""

    tenant: Tenant
    sentence: str


@dataclass(frozen=True, slots=True)
class RunView:
    """A run of a workflow: what is recorded of it as a whole, and its steps in the order in which they began.

    Attributes:
      run: its id, 16 bytes; another one than the item's if the item has a name.
      version: of the code that began it; None: nothing is recorded.
      began_us: when its first step was recorded.
      segment: how many checkpoints there were; only the steps since the last one are kept.
      checkpoint: what was passed to the last one.
      cancelling: its cancellation was requested.
      undo_reason: why its steps are being undone; None: it goes forward.
      waits_for_signals: their names; `waits_for_children`: the calls whose children have not ended.
      until_us: when it goes on at the latest; None: it does not wait.
      running: a worker has it now. The step that it does is recorded once it is done.
      failed_attempts: how many attempts ended with an error since the last progress was recorded.
      last_error: of the last of them; None: there is none.
      dead_letter_error: of a dead letter; None: it is in its queue.
      whole: whether these are all steps; False: a tenant has more than were read, 10,000 unless the caller says less.
      away: tenants on other shards, and external stores, whose steps are missing here.
    """

    item_id: bytes
    shard: str
    tenant: Tenant
    zone: str
    kind: str
    run: bytes
    enqueued_us: int
    version: int | None
    began_us: int | None
    segment: int
    checkpoint: Any
    cancelling: bool
    undo_reason: str | None
    waits_for_signals: tuple[str, ...]
    waits_for_children: tuple[str, ...]
    until_us: int | None
    running: bool
    failed_attempts: int
    last_error: str | None
    dead_letter_error: str | None
    steps: list[StepView]
    whole: bool
    away: list[AwayParticipant]
    now_us: int


def read_steps(
    shards: Shards,
    shard: Shard,
    tenant: Tenant,
    zone: str,
    item_id: bytes,
    *,
    externals: Mapping[str, ExternalStore],
    pages_max: int = PAGES_MAX,
) -> RunView:
    """Return the run of an item, or of a dead letter. `shard`: the tenant's home. `externals`: stores by name.

    An item that is no workflow has no steps. `pages_max`: of 2,000 steps each, read of each tenant; 1 or more.

    Raises:
      ItemGone: there is neither: the run has ended, or was never begun.
      ItemUnreadable: a newer version wrote the item, or it is damaged.
      TenantMoved: another shard owns the tenant.
      One of `shard.db.errors`: the home cannot be read.
    """
    location = shard.layout.location(tenant, zone)
    home = StoredRun()

    def first_page(attempt: Attempt) -> tuple[Receiver | None, bytes, int]:
        found = run_one(receiver_op(attempt.tr, location, item_id))
        if found is None or not found.record.keeps_run:
            return found, b"", attempt.now_us
        return found, read_run(attempt.tr, location, found.run, home), attempt.now_us

    found, begin, now_us = shard.transact(first_page)
    if found is None:
        raise ItemGone(item=item_id.hex(), tenant=str(tenant), zone=zone)
    run = found.run
    whole = _read_pages(shard, lambda tr, begin: read_run(tr, location, run, home, begin=begin), begin, pages_max - 1)
    places: dict[StepName, tuple[Tenant, StepEntry]] = {step: (tenant, entry) for step, entry in home.entries.items()}
    away = []
    for participant in home.participants:
        store = store_of_participant(participant)
        if store is None:
            read = query_home(
                shards,
                participant,
                partial(_participant_steps, tenant=participant, run=run, home=home, pages_max=pages_max),
            )
        else:
            read = query_store(externals, store, lambda steps: (steps.entries(run, home.segment), True))
        if read.found is None:
            away.append(AwayParticipant(participant, read.sentence))
            continue
        entries, all_of_it = read.found
        whole = whole and all_of_it
        places |= {step: (participant, entry) for step, entry in entries.items()}
    return _view(found, tenant, zone, shard.name, home, places, whole=whole, away=away, now_us=now_us)


def _participant_steps(
    shard: Shard, tenant: Tenant, run: bytes, home: StoredRun, pages_max: int
) -> tuple[Mapping[StepName, StepEntry], bool]:
    keys = shard.layout.location(tenant, DEFAULT_ZONE).keys.tenant
    stored = StoredRun(home.head)
    whole = _read_pages(shard, lambda tr, begin: read_participant(tr, keys, run, stored, begin=begin), None, pages_max)
    return stored.entries, whole


def _read_pages(shard: Shard, read: Callable[[Reader, bytes], bytes], begin: bytes | None, pages_max: int) -> bool:
    """Read page after page from `begin` on, None: the first one; return whether the last one was reached."""
    while pages_max and begin != b"":
        begin = shard.transact(partial(_read_page, read=read, begin=begin or b""))
        pages_max -= 1
    return begin == b""


def _read_page(attempt: Attempt, *, read: Callable[[Reader, bytes], bytes], begin: bytes) -> bytes:
    return read(attempt.tr, begin)


def _view(
    found: Receiver,
    tenant: Tenant,
    zone: str,
    shard_name: str,
    home: StoredRun,
    places: Mapping[StepName, tuple[Tenant, StepEntry]],
    *,
    whole: bool,
    away: list[AwayParticipant],
    now_us: int,
) -> RunView:
    record, head = found.record, home.head
    awaited = [each for name in record.waits_for if (each := awaited_of(name)) is not None]
    calls = [(step_of_call(home.segment, each.name), each) for each in awaited if isinstance(each, AwaitedChild)]
    children = {StepName(name, each.occurrence) for name, each in calls}
    signals = signals_of(record)  # What locks it waits for, its steps say.
    ids = {step: id_of(found.run, home.segment, step) for step in places}
    steps = [_step_view(step, place, places, children, ids[step]) for step, place in places.items()]
    steps.sort(key=lambda each: each.ordinal)
    waiting = found.dead_letter is None and not record.lease_id and record.vesting_us > now_us
    return RunView(
        item_id=found.item_id,
        shard=shard_name,
        tenant=tenant,
        zone=zone,
        kind=record.kind,
        run=found.run,
        enqueued_us=record.enqueued_us,
        version=None if head is None else head.version,
        began_us=None if head is None else head.began_us,
        segment=home.segment,
        checkpoint=None if head is None or not head.checkpoint else unpacked_or_reason(head.checkpoint),
        cancelling=record.cancelling,
        undo_reason=None if head is None else head.undo_reason,
        waits_for_signals=tuple(signals) if waiting else (),
        waits_for_children=tuple(shown(each) for each in sorted(children)) if waiting else (),
        until_us=record.vesting_us if waiting else None,
        running=found.dead_letter is None and bool(record.lease_id) and record.vesting_us > now_us,
        failed_attempts=record.error_count,
        last_error=record.last_error if record.error_count else None,
        dead_letter_error=None if found.dead_letter is None else found.dead_letter.error,
        steps=steps,
        whole=whole,
        away=away,
        now_us=now_us,
    )


def _step_view(
    step: StepName,
    place: tuple[Tenant, StepEntry],
    places: Mapping[StepName, tuple[Tenant, StepEntry]],
    children: set[StepName],
    made_id: bytes,
) -> StepView:
    """Return a step. `made_id`: the id of an item that it has enqueued, if it has, and the item was given no name."""
    tenant, entry = place
    undo = places.get(StepName(f"{_UNDO}{step.name}", step.occurrence))
    result = unpacked_or_reason(entry.result) if entry.state is StepState.DONE else None
    is_call = step in children or StepName(f"{RESULT_OF}{step.name}", step.occurrence) in places
    child_id = result if is_call and isinstance(result, bytes) and len(result) == ID_BYTES else None
    return StepView(
        name=step.name,
        occurrence=step.occurrence,
        ordinal=entry.ordinal,
        kind=entry.kind,
        state=entry.state,
        at_us=entry.at_us,
        took_us=entry.took_us,
        result=result,
        error_type="" if entry.error is None else entry.error.type_name.rpartition(".")[2],
        error="" if entry.error is None else entry.error.message,
        tries=entry.tries,
        until_us=entry.until_us,
        tenant=tenant,
        undone_us=None if undo is None or undo[1].kind is not StepKind.UNDO else undo[1].at_us,
        child_id=child_id,
        enqueued_id=made_id if entry.kind is StepKind.STEP and result == made_id else child_id,
    )


def unpacked_or_reason(packed: bytes) -> Any:
    """Return stored data; of damaged data, the text of the error."""
    try:
        return unpack_payload(packed)
    except PayloadDamaged as error:
        return str(error)
