"""Exhuming: buried items revived or discarded in bulk, by what they are and why they failed.

Each shard's list of graves is walked once, from the oldest to those of this moment, a bounded stretch per transaction.
So what fails again meanwhile is not met again, and whoever is broken off and calls again goes on with what is left.
The deed is written down with each transaction: how many it were so far, and whether it came to its end.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from fairlead.operator import Operator
from fairlead.zones.engines import Transaction
from fairlead.zones.queue import dead_letter_search
from fairlead.zones.queue.dead_letter_search import EXHUMED_MAX, Sought
from fairlead.zones.queue.dead_letters import BuriedItem
from fairlead.zones.records import DeedRecord
from fairlead.zones.reporting import audit_log
from fairlead.zones.shard import Shard
from fairlead.zones.transaction_runner import Attempt

_Change = Callable[[Attempt, Shard, Sequence[BuriedItem]], list[BuriedItem]]


@dataclass(slots=True)
class Exhumed:
    """What became of a bulk of buried items.

    `scanned`: at how many graves. `by_kind`: how many of each kind. `whole`: whether it went on to the end.
    """

    count: int = 0
    scanned: int = 0
    by_kind: Counter[str] = field(default_factory=Counter)
    whole: bool = True

    def add(self, items: Sequence[BuriedItem]) -> None:
        """Count some more."""
        self.count += len(items)
        self.by_kind.update(item.record.item.kind for item in items)


GoOn = Callable[[Exhumed], bool]


def retry_all(
    shards: Mapping[str, Shard],
    sought: Sought,
    operator: Operator,
    *,
    dry_run: bool = False,
    go_on: GoOn | None = None,
) -> Exhumed:
    """Put all buried items that are meant back into their queues, due now.

    Args:
      dry_run: change nothing, and say what would be.
      go_on: called after each transaction with what was done so far; says whether to go on.

    Raises:
      UnknownShard: `sought` names a shard that there is not.
    """

    def change(attempt: Attempt, shard: Shard, items: Sequence[BuriedItem]) -> list[BuriedItem]:
        return dead_letter_search.revive_all(attempt.tr, shard.layout, items, now_us=attempt.now_us)

    return _exhume(shards, sought, operator, "revive", None if dry_run else change, go_on)


def discard_all(
    shards: Mapping[str, Shard],
    sought: Sought,
    operator: Operator,
    *,
    dry_run: bool = False,
    go_on: GoOn | None = None,
) -> Exhumed:
    """Delete all buried items that are meant for good; see `retry_all`."""

    def change(attempt: Attempt, shard: Shard, items: Sequence[BuriedItem]) -> list[BuriedItem]:
        return dead_letter_search.discard_all(attempt.tr, shard.layout, items)

    return _exhume(shards, sought, operator, "discard", None if dry_run else change, go_on)


def filter_as_target(sought: Sought) -> dict[str, Any]:
    """Return which items are meant, as a deed says it."""
    said = {key: value for key, value in sought._asdict().items() if value is not None}
    if sought.tenant is not None:
        said["tenant"] = list(sought.tenant)
    return said


def _exhume(
    shards: Mapping[str, Shard],
    sought: Sought,
    operator: Operator,
    what: str,
    change: _Change | None,
    go_on: GoOn | None,
) -> Exhumed:
    exhumed = Exhumed()
    deed_id: bytes | None = None
    written: list[tuple[Shard, DeedRecord]] = []
    for name in shards if sought.shard is None else [sought.shard]:
        shard = shards[name]
        deed_id = deed_id or shard.random.randbytes(audit_log.ID_BYTES)
        deed = operator.deed(
            deed_id, what, filter_as_target(sought), done_us=shard.clock.now_us(), count=0, ended=False
        )
        for items in _found(shard, sought, exhumed):
            if change is None:
                exhumed.add(items)
            elif items:
                done = _changed(shard, items, deed, change)
                exhumed.add(done)
                deed = replace(deed, count=deed.count + len(done))
            if go_on is not None and not go_on(exhumed):
                exhumed.whole = False
                break
        if deed.count:
            written.append((shard, deed))
        if not exhumed.whole:
            return exhumed
    for shard, deed in written:
        last = replace(deed, ended=True)
        shard.transact(lambda attempt, last=last: audit_log.note(attempt.tr, last))  # type: ignore[misc]
    return exhumed


def _found(shard: Shard, sought: Sought, exhumed: Exhumed) -> Iterator[list[BuriedItem]]:
    """Yield what is meant, stretch by stretch, and count the graves that were looked at."""
    now_us = shard.clock.now_us()
    end_us = now_us + 1  # What is buried at this very moment too.
    before_us = end_us if sought.before_us is None else min(sought.before_us, end_us)
    bounded = sought._replace(before_us=before_us)
    next_key: bytes | None = None
    while True:

        def body(attempt: Attempt, next_key: bytes | None = next_key) -> dead_letter_search.Unearthed:
            return dead_letter_search.search(
                attempt.tr, shard.layout, bounded, items_max=EXHUMED_MAX, next_key=next_key
            )

        unearthed = shard.transact(body)
        exhumed.scanned += unearthed.looked
        yield unearthed.items
        next_key = unearthed.next_key
        if next_key is None:
            return


def _changed(shard: Shard, items: Sequence[BuriedItem], deed: DeedRecord, change: _Change) -> list[BuriedItem]:
    """Change items in one transaction, with the deed; return those that were."""
    done: list[BuriedItem] = []

    def body(attempt: Attempt) -> list[BuriedItem]:
        nonlocal done
        done = change(attempt, shard, items)
        if done:
            audit_log.note(attempt.tr, replace(deed, count=deed.count + len(done)))
        return done

    def was_applied(tr: Transaction) -> bool:
        written = audit_log.find(tr, deed.id)
        return written is not None and written.count == deed.count + len(done)

    shard.transact(body, applied=was_applied)
    return done
