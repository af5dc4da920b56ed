"""What needs attention, by the status of the shards and external stores. Plain decisions."""

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple
from urllib.parse import urlencode

from fairlead.queries.external_stores import ExternalStatus
from fairlead.queries.per_shard import ShardResult
from fairlead.status import COUNTED_MAX, ShardStatus

NAMED_MAX = 5  # Names that a sentence lists.
LATE_US = 60_000_000  # An item that has been due for a minute is a concern.
DEAD_ROWS_MAX = 1_000_000  # Autovacuum begins at 20,000.


class Severity(IntEnum):
    """How much something matters."""

    NOTE = 0  # an operator has decided so
    CARE = 1  # it will not go away by itself
    ALARM = 2  # work stands still


class Concern(NamedTuple):
    """Something that needs attention. `see`: the page with more about it; `do`: what helps."""

    severity: Severity
    message: str
    see: str
    do: str = ""


def concerns(results: Sequence[ShardResult[ShardStatus]], externals: Sequence[ExternalStatus] = ()) -> list[Concern]:
    """Return what needs attention on some shards, and in external stores, the most severe first."""
    found = [concern for each in results for concern in _of(each)]
    statuses = [each.found for each in results if each.found is not None]
    live = [one.record for status in statuses for one in status.consumers if one.live]
    known = {kind for record in live for kind in record.kinds} if live else None
    found += [concern for each in externals for concern in _of_external(each, known)]
    return sorted(found, key=lambda each: -each.severity)


def _of(result: ShardResult[ShardStatus]) -> Iterable[Concern]:
    name, status = result.shard, result.found
    if status is None:
        yield Concern(Severity.ALARM, f"Shard {name} cannot be read: {result.sentence}", "/", result.remedy)
        return
    if status.stall is not None:
        message = f"No process can write to shard {name}: the lock is held by {status.stall.holder}"
        yield Concern(Severity.ALARM, message, "/", status.stall.remedy)
    live = sum(each.live for each in status.consumers)
    waiting = sum(status.depth.values())
    if waiting and not live:
        message = f"{waiting:,} items wait on shard {name}, and no live consumer serves it"
        yield Concern(Severity.ALARM, message, "/", "start one: fairlead run APP")
    elif status.unserved:
        kinds = _some(status.unserved)
        message = f"No live consumer of shard {name} handles {kinds}"
        see = "/kinds" if len(status.unserved) > 1 else f"/kind?{urlencode({'kind': status.unserved[0]})}"
        yield Concern(Severity.ALARM, message, see, "run an application that handles them, or submit a handler")
    if not status.depth_whole:
        message = (
            f"Shard {name} has items of more kinds than are counted here, the first of which is {min(status.depth)}"
        )
        yield Concern(
            Severity.CARE, message, "/kinds", "use one kind per handler, and put variable parts into the payload"
        )
    late_us = 0 if status.oldest_us is None else status.now_us - status.oldest_us
    if live and late_us > LATE_US and not status.paused:
        message = f"The oldest item on shard {name} has waited for {late_us // 60_000_000} min"
        held = status.waits.blocked_oldest_us == status.oldest_us
        why, do = (
            (", and is held back", "look at limits, pauses and unknown kinds: fairlead status")
            if held
            else ("", "more consumers or slots")
        )
        yield Concern(Severity.CARE, message + why, "/tenants", do)
    dead = [each for each in status.consumers if not each.live]
    if dead:
        hosts = ", ".join(sorted({each.record.host for each in dead}))
        consumers = "consumer" if len(dead) == 1 else "consumers"
        message = f"{len(dead)} {consumers} of shard {name} stopped sending heartbeats in the last minute, on {hosts}"
        yield Concern(Severity.CARE, message, "/")
    if status.dead_letters:
        more = " or more" if status.dead_letters >= COUNTED_MAX else ""
        noun = "dead letter" if status.dead_letters == 1 else "dead letters"
        yield Concern(Severity.CARE, f"{status.dead_letters:,}{more} {noun} on shard {name}", "/dead-letters")
    yield from _damaged(name, status)
    yield from _decided(name, status)


def _of_external(status: ExternalStatus, known: set[str] | None) -> Iterable[Concern]:
    """Yield what needs attention in an external store. `known`: the kinds of live consumers; None: there are none."""
    name, totals, reader = status.name, status.totals, status.reader
    if totals is None:
        yield Concern(Severity.ALARM, f"External store {name} cannot be read: {status.sentence}", "/", status.remedy)
        return
    if reader.error:
        yield Concern(Severity.ALARM, f"How far the reader of {name} is cannot be read: {reader.error}", "/")
    elif totals.items and not reader.is_live:
        items = "item is" if totals.items == 1 else "items are"
        message = f"{totals.items:,} {items} in external store {name}, and no consumer reads it"
        yield Concern(Severity.ALARM, message, "/", f"start one with {name} in its configuration")
    elif totals.unseen_us is not None and totals.unseen_us > LATE_US:
        message = f"The reader of external store {name} is {totals.unseen_us // 60_000_000} min behind"
        yield Concern(Severity.ALARM, message, "/", "look at the log of the consumers: fairlead.reader")
    unserved = [kind for kind in totals.kinds if known is not None and kind not in known]
    if unserved:
        message = f"No live consumer handles {_some(unserved)}, of which {name} holds items"
        yield Concern(Severity.ALARM, message, "/kinds", "run an application that handles them, or submit a handler")
    if reader.is_live and totals.waits_us is not None and totals.waits_us > LATE_US:
        message = f"The oldest item in external store {name} has waited for {totals.waits_us // 60_000_000} min"
        yield Concern(Severity.CARE, message, "/", "look at limits and pauses, or run more consumers or slots")
    if totals.dead_letters:
        more = " or more" if totals.dead_letters >= COUNTED_MAX else ""
        noun = "dead letter" if totals.dead_letters == 1 else "dead letters"
        yield Concern(Severity.CARE, f"{totals.dead_letters:,}{more} {noun} in external store {name}", "/")
    if totals.dead_rows > DEAD_ROWS_MAX:
        message = f"{totals.dead_rows:,} rows of external store {name} are dead and not removed"
        yield Concern(Severity.CARE, message, "/", "fairlead check says what holds VACUUM up")


def _damaged(name: str, status: ShardStatus) -> Iterable[Concern]:
    if status.unreadable:
        queues = "queue holds" if status.unreadable == 1 else "queues hold"
        message = f"{status.unreadable:,} {queues} records on shard {name} that cannot be read; consumers skip them"
        yield Concern(Severity.CARE, message, "/", "name them: fairlead check")
    if status.quarantined:
        pairs = "pair was" if status.quarantined == 1 else "pairs were"
        message = f"{status.quarantined:,} damaged {pairs} set aside on shard {name}"
        yield Concern(Severity.NOTE, message, "/", "look at them: fairlead quarantine")


def _decided(name: str, status: ShardStatus) -> Iterable[Concern]:
    if status.paused:
        yield Concern(Severity.NOTE, f"Shard {name} is paused", "/")
    paused = [kind for kind, policy in status.kind_policies.items() if policy.paused]
    if paused:
        yield Concern(Severity.NOTE, f"Paused on shard {name}: {', '.join(paused)}", "/kinds")
    tenants = [tenant for tenant, policy in status.tenant_policies.items() if policy.paused]
    if tenants:
        names = _some([str(tenant) for tenant in tenants])
        yield Concern(Severity.NOTE, f"Paused tenants of shard {name}: {names}", "/tenants")


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return f"{', '.join(names[:NAMED_MAX])}{more}"
