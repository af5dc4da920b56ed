"""The end of a run: what every transaction does that ends an item for which keys of its run are stored.

A run ends when its item is completed, dropped, discarded from the dead letters, or deleted. A dead letter has not
ended: it may be retried. A late step on another shard must find that the run has ended. So if there are participants, a
*cleanup* is enqueued in the same transaction: a plain item of the home tenant, which is safe to run twice.
"""

from hashlib import blake2b

from fairlead.zones.engines import Reader, Transaction
from fairlead.zones.keyspace import range_begin, range_end, unpack_names
from fairlead.zones.layout import ID_BYTES, Tenant, ZoneLocation
from fairlead.zones.ownership import check_home, check_owner
from fairlead.zones.pipelining import Operation
from fairlead.zones.probes import probe
from fairlead.zones.queue import insertion
from fairlead.zones.queue.items import new_item
from fairlead.zones.workflow import locks
from fairlead.zones.workflow.run_records import decode_head, head_key, participant_key, participants_prefix

CLEANUP_KIND = "fairlead.cleanup"


def end_run_op(tr: Transaction, location: ZoneLocation, run: bytes, *, now_us: int) -> Operation[None]:
    """Clear what is stored at home of a run that ends in this transaction. The caller has read the item's record.

    Reads with conflict: the head, and without one the participants; if there are any, what an enqueue reads; the locks
    that the run has at home, see `locks.release_all`. Writes: the log, the signals and the results of child jobs
    (cleared); of a run with participants, their keys stay, and a cleanup item is enqueued; and see there. May run
    twice.
    """
    keys = location.keys.tenant
    stored, requests = tr.get(head_key(keys, run)), locks.has_requests(tr, keys, run)
    yield
    if next(iter(requests), None) is not None:
        probe("a run ends that holds locks, or waits for one")
        locks.release_all(tr, location, run, now_us=now_us)
    head = None if stored.value is None else decode_head(stored.value)
    for prefix in (keys.signals(run), keys.child_results(run)):
        tr.clear_range(range_begin(prefix), range_end(prefix))
    log, participants = keys.step_log(run), participants_prefix(keys, run)
    if stored.value is None:  # Nothing was recorded, or the head was lost: then nobody else knows the participants.
        first = next(iter(tr.get_range(range_begin(participants), range_end(participants), limit=1)), None)
        has_participants = first is not None
    else:
        has_participants = head is None or head.has_participants
    if not has_participants:
        tr.clear_range(range_begin(log), range_end(log))
        return
    probe("a run with participants ends")
    tr.clear_range(range_begin(log), participants)
    tr.clear_range(range_end(participants), range_end(log))
    yield from enqueue_cleanup_op(tr, location, run, now_us=now_us)


def cleanup_id(run: bytes) -> bytes:
    """Return the id of the cleanup of a run."""
    return blake2b(b"cleanup" + run, digest_size=ID_BYTES).digest()


def enqueue_cleanup_op(tr: Transaction, location: ZoneLocation, run: bytes, *, now_us: int) -> Operation[None]:
    """Enqueue the cleanup of a run that has ended. Reads and writes what an enqueue does. May run twice."""
    cleanup = new_item(CLEANUP_KIND, {"run": run})
    yield from insertion.enqueue_op(tr, location, [(cleanup_id(run), cleanup)], now_us=now_us, ids_are_new=False)


def participants_of(tr: Reader, location: ZoneLocation, run: bytes) -> list[Tenant]:
    """Return the participants of a run that has ended, which are not cleaned up. Snapshot reads: ownership, a range.

    Raises:
      TenantMoved: another shard owns the tenant.
    """
    check_home(tr, location)
    prefix = participants_prefix(location.keys.tenant, run)
    rows = tr.snapshot.get_range(range_begin(prefix), range_end(prefix))
    named = [unpack_names(row.key, len(prefix), 2) for row in rows]
    return [Tenant(*names[0]) for names in named if names is not None]


def forget_participant(tr: Transaction, location: ZoneLocation, run: bytes, tenant: Tenant) -> None:
    """Forget a participant that is cleaned up. May run twice. Reads with conflict: ownership. Writes: its key.

    Raises:
      TenantMoved: another shard owns the run's tenant.
    """
    keys = location.keys.tenant
    check_owner(tr, location.layout, keys, tr.get(keys.owner).value)
    tr.clear(participant_key(location.keys.tenant, run, tenant))
