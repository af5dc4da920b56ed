"""The check of an external store: may this program use it, has each queue a pointer, and what holds the store up?"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from fairlead.causes import span_text
from fairlead.error_text import remedy_of, sentence_of
from fairlead.queries.external_stores import ReaderState, read_reader_state
from fairlead.shards import Shards
from fairlead.zones.engines import StoreUnavailable
from fairlead.zones.errors import BadArgument, QueueError
from fairlead.zones.external.arrivals import note_arrival
from fairlead.zones.external.inspection import InspectedStore, StoreHealth, StoreTotals
from fairlead.zones.external.names import check_zone_name, pointer_zone
from fairlead.zones.external.store import Arrival, Queue
from fairlead.zones.shard import Shard
from fairlead.zones.transaction_runner import Attempt

SLICE = 500  # Queues that are read at once.
NOTIFY_SHARE_MAX = 0.5  # Of the server's queue of notifications.
SNAPSHOT_US_MAX = 600_000_000
PREPARED_US_MAX = 3_600_000_000
DEAD_ROWS_MAX = 1_000_000
FINDINGS_MAX = 1_000

_RINGS_ANYWAY = "the doorbell is on, though notify = false here: a consumer with another configuration reads the store"
_SAME_EVERYWHERE = "give all processes of the fleet the same configuration, and start them again"

Progress = Callable[[int], None]


class ExternalFinding(NamedTuple):
    """Something about an external store that needs attention.

    `is_fault`: items do not run, or cannot be enqueued, because of it; else it may slow the store down. `do`: what
    helps. `queue`: of which queue; None: of the whole store.
    """

    what: str
    is_fault: bool
    do: str
    queue: Queue | None = None
    repaired: bool = False


class ExternalReport(NamedTuple):
    """What a check found. `queues`: how many were compared with their pointers; `whole`: whether these are all."""

    queues: int
    findings: list[ExternalFinding]
    whole: bool = True

    @property
    def healthy(self) -> bool:
        """Whether no fault is left."""
        return self.whole and all(each.repaired or not each.is_fault for each in self.findings)


def check_external(
    shards: Shards, name: str, store: InspectedStore, *, repair: bool, progress: Progress
) -> ExternalReport:
    """Check one external store. Producers and consumers may run meanwhile.

    Args:
      repair: make pointers that are missing.
      progress: is called with how many queues were compared.
    """
    try:
        health = store.health()
        reader = read_reader_state(shards, name)
        totals = store.totals(reader.seen)
        findings = [*_of_health(health), *_of_totals(totals, reader)]
        if totals.rings and not store.notifies:
            findings.append(ExternalFinding(_RINGS_ANYWAY, False, _SAME_EVERYWHERE))
        queues = 0
        for queues, missing in _without_pointer(shards, name, store, reader):
            progress(queues)
            for queue in missing:
                if _is_misnamed(queue):
                    findings.append(_misnamed(queue))
                    continue
                if repair:
                    _make_pointer(shards, name, queue)
                findings.append(_missing(queue, repaired=repair))
            if len(findings) >= FINDINGS_MAX:
                return ExternalReport(queues, findings, whole=False)
    except (QueueError, StoreUnavailable) as error:
        return ExternalReport(0, [ExternalFinding(sentence_of(error), True, remedy_of(error))])
    return ExternalReport(queues, findings)


def _of_health(health: StoreHealth) -> Iterator[ExternalFinding]:
    """Yield what is wrong with the server, or with what this role may do."""
    if health.lacking:
        what = f"this role may not use {', '.join(health.lacking)}"
        yield ExternalFinding(
            what, True, "let the role of a fleet use the schema: fairlead postgres grant --consumer ROLE"
        )
    if health.notify_share > NOTIFY_SHARE_MAX:
        what = f"the server's queue of notifications is {health.notify_share:.0%} full; once it is full, commits fail"
        do = "end the session that listens and stays in a transaction: the server's log names it"
        yield ExternalFinding(what, False, do)
    if health.snapshot_us is not None and health.snapshot_us > SNAPSHOT_US_MAX:
        what = f"a transaction has been open for {span_text(health.snapshot_us)}, by {health.snapshot_holder}"
        yield ExternalFinding(what, False, "end it: VACUUM removes no row that ended since it began")
    if health.hidden:
        what = f"this role does not see the snapshots of {health.hidden} sessions"
        yield ExternalFinding(what, False, "GRANT pg_read_all_stats TO the role, or check as a superuser")
    if health.prepared_us is not None and health.prepared_us > PREPARED_US_MAX:
        oldest = f"a transaction has been prepared for {span_text(health.prepared_us)}"
        what = f"{oldest}; prepared in all: {health.prepared}"
        yield ExternalFinding(
            what, False, "end them, COMMIT PREPARED or ROLLBACK PREPARED: pg_prepared_xacts lists them"
        )
    if health.publications:
        what = f"the schema is published by {', '.join(health.publications)}"
        yield ExternalFinding(what, True, "take it out: items of a subscriber's copy would run twice")
    if not health.autovacuum:
        yield ExternalFinding("autovacuum is off", False, "turn it on: rows of items that ended stay otherwise")


def _of_totals(totals: StoreTotals, reader: ReaderState) -> Iterator[ExternalFinding]:
    if totals.dead_rows > DEAD_ROWS_MAX:
        what = f"{totals.dead_rows:,} rows are dead and not removed"
        yield ExternalFinding(what, False, "end old transactions, then VACUUM fairlead.items")
    if totals.rings and not reader.is_live:
        what = "the doorbell is on, and no consumer reads the store: it slows down commits of all users"
        yield ExternalFinding(what, False, "start a consumer; or UPDATE fairlead.doorbell SET rings = false")


def _without_pointer(
    shards: Shards, name: str, store: InspectedStore, reader: ReaderState
) -> Iterator[tuple[int, list[Queue]]]:
    """Yield slice by slice how many queues were compared so far, and which of the slice lack a pointer.

    Only queues with an item that the reader had seen when this began must have one. A pointer is deleted once a visit
    has found its queue empty. So the pointer is read, then the queue, then the pointer again: an item that comes
    meanwhile is none that the reader had seen.
    """
    behind: Queue | None = None
    queues = 0
    while some := store.queues_behind(behind, SLICE):
        behind = some[-1]
        queues += len(some)
        missing = [queue for queue in some if not _has_pointer(shards, name, queue)]
        seen = store.seen_of(missing, reader.seen) if missing and reader.seen is not None else []
        yield queues, [queue for queue in seen if not _has_pointer(shards, name, queue)]


def _has_pointer(shards: Shards, name: str, queue: Queue) -> bool:
    if _is_misnamed(queue):
        return False
    shard = shards.find(queue.tenant)
    key = shard.layout.location(queue.tenant, pointer_zone(name, queue.zone)).keys.pointer
    return shard.transact(lambda attempt: attempt.tr.snapshot.get(key).present())


def _make_pointer(shards: Shards, name: str, queue: Queue) -> None:
    def on(shard: Shard) -> None:
        def body(attempt: Attempt) -> None:
            note_arrival(attempt.tr, shard.layout, name, Arrival(queue, 0), now_us=attempt.now_us)

        shard.transact(body)

    shards.at_home(queue.tenant, on)


def _is_misnamed(queue: Queue) -> bool:
    try:
        check_zone_name(queue.zone)
    except BadArgument:
        return True
    return False


def _misnamed(queue: Queue) -> ExternalFinding:
    what = "a queue has a name that none can have, so its items never run"
    return ExternalFinding(what, True, "delete them: DELETE FROM fairlead.items WHERE zone = that name", queue)


def _missing(queue: Queue, *, repaired: bool) -> ExternalFinding:
    return ExternalFinding(
        "a queue holds items, and has no pointer", True, "fairlead check --repair makes it", queue, repaired
    )
