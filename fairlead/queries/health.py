"""What needs somebody's attention, of what a look at the shards found. Plain decisions."""

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple

from fairlead.queries.per_shard import Seen
from fairlead.status import COUNTED_MAX, ShardStatus

NAMED_MAX = 5  # Of what a sentence lists.
LATE_US = 60_000_000  # An item that could have run for a minute, and did not, is worth a word.


class Weight(IntEnum):
    """How much something matters."""

    NOTE = 0  # somebody has decided so
    CARE = 1  # it will not go away by itself
    ALARM = 2  # work stands still


class Concern(NamedTuple):
    """Something that needs attention. `see`: the page that shows more of it; `do`: what helps."""

    weight: Weight
    said: str
    see: str
    do: str = ""


def concerns(seen: Sequence[Seen[ShardStatus]]) -> list[Concern]:
    """Return what needs attention on some shards, what matters most first."""
    found = [concern for each in seen for concern in _of(each)]
    return sorted(found, key=lambda each: -each.weight)


def _of(result: Seen[ShardStatus]) -> Iterable[Concern]:
    name, status = result.shard, result.found
    if status is None:
        yield Concern(Weight.ALARM, f"Shard {name} cannot be read: {result.sentence}", "/", result.remedy)
        return
    if status.stall is not None:
        said = f"Nobody can write to shard {name}: the lock is held by {status.stall.who}"
        yield Concern(Weight.ALARM, said, "/", status.stall.remedy)
    live = sum(each.live for each in status.consumers)
    waiting = sum(status.depth.values())
    if waiting and not live:
        said = f"{waiting:,} items wait on shard {name}, and no live consumer serves it"
        yield Concern(Weight.ALARM, said, "/", "start one: fairlead run APP")
    elif status.unserved:
        kinds = _some(status.unserved)
        said = f"No live consumer of shard {name} knows {kinds}"
        yield Concern(Weight.ALARM, said, "/kinds", "run an application that handles them, or submit a handler")
    if not status.depth_whole:
        said = f"Shard {name} has items of more kinds than are counted here, the first of which is {min(status.depth)}"
        yield Concern(Weight.CARE, said, "/kinds", "name the handler in a kind, and put what differs into the payload")
    late_us = 0 if status.oldest_us is None else status.now_us - status.oldest_us
    if live and late_us > LATE_US and not status.paused:
        said = f"The oldest item on shard {name} has waited for {late_us // 60_000_000} min"
        held = status.waits.held_oldest_us == status.oldest_us
        why, do = (
            (", and is held back", "look at limits, pauses and unknown kinds: fairlead status")
            if held
            else ("", "more consumers or slots")
        )
        yield Concern(Weight.CARE, said + why, "/tenants", do)
    dead = [each for each in status.consumers if not each.live]
    if dead:
        hosts = ", ".join(sorted({each.presence.host for each in dead}))
        said = (
            f"{len(dead)} {'consumer' if len(dead) == 1 else 'consumers'} of shard {name} fell silent within the last"
        )
        yield Concern(Weight.CARE, f"{said} minute, on {hosts}", "/")
    if status.dead_letters:
        more = " or more" if status.dead_letters >= COUNTED_MAX else ""
        items = "item is" if status.dead_letters == 1 else "items are"
        yield Concern(Weight.CARE, f"{status.dead_letters:,}{more} {items} buried on shard {name}", "/buried")
    yield from _damaged(name, status)
    yield from _decided(name, status)


def _damaged(name: str, status: ShardStatus) -> Iterable[Concern]:
    if status.unreadable:
        queues = "queue holds" if status.unreadable == 1 else "queues hold"
        said = f"{status.unreadable:,} {queues} records on shard {name} that cannot be read, and are passed over"
        yield Concern(Weight.CARE, said, "/", "name them: fairlead check")
    if status.set_aside:
        pairs = "pair was" if status.set_aside == 1 else "pairs were"
        said = f"{status.set_aside:,} damaged {pairs} set aside on shard {name}"
        yield Concern(Weight.NOTE, said, "/", "look at them: fairlead quarantine")


def _decided(name: str, status: ShardStatus) -> Iterable[Concern]:
    if status.paused:
        yield Concern(Weight.NOTE, f"Shard {name} is paused", "/")
    paused = [kind for kind, rule in status.kind_rules.items() if rule.paused]
    if paused:
        yield Concern(Weight.NOTE, f"Paused on shard {name}: {', '.join(paused)}", "/kinds")
    tenants = [tenant for tenant, rule in status.tenant_rules.items() if rule.paused]
    if tenants:
        names = _some(["/".join(tenant) for tenant in tenants])
        yield Concern(Weight.NOTE, f"Paused tenants of shard {name}: {names}", "/tenants")


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return f"{', '.join(names[:NAMED_MAX])}{more}"
