"""Dead letters in groups: those of one kind whose errors have one signature."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from fairlead.external_dead_letters import read_batches
from fairlead.queries.tenants import SCANNED_PER_PAGE_MAX, dead_letter_batches
from fairlead.zones.external.store import ExternalStore
from fairlead.zones.layout import Tenant
from fairlead.zones.queue.dead_letter_search import DeadLetterFilter, error_signature
from fairlead.zones.queue.dead_letters import DeadLetter
from fairlead.zones.shard import Shard

GROUPS_MAX = 200  # Of each shard, those with the latest dead letters.


@dataclass(slots=True)
class DeadLetterGroup:
    """Dead letters of one kind with one signature. Times in microseconds since the epoch.

    `example`: the latest error of the group, whole.
    """

    kind: str
    signature: str
    example: str
    first_us: int
    last_us: int
    count: int = 0
    tenants: set[Tenant] = field(default_factory=set)

    def add(self, item: DeadLetter) -> None:
        """Count a dead letter."""
        failed_us = item.record.dead_lettered_us
        if failed_us > self.last_us:
            self.last_us, self.example = failed_us, item.record.error
        self.first_us = min(self.first_us, failed_us)
        self.count += 1
        self.tenants.add(item.tenant)


class DeadLetterGroups(NamedTuple):
    """The groups of `scanned` dead letters. `whole`: whether these are all.

    If not, they are the latest of a shard, or the oldest of an external store.
    """

    groups: list[DeadLetterGroup]
    scanned: int
    whole: bool


class _Batch(NamedTuple):
    """Matching dead letters; how many were read so far; whether there are no others."""

    items: list[DeadLetter]
    scanned: int
    whole: bool


def read_groups(shard: Shard, criteria: DeadLetterFilter) -> DeadLetterGroups:
    """Group the matching dead letters of a shard, of its latest `SCANNED_PER_PAGE_MAX`.

    Snapshot reads, a stretch of dead letters in each transaction.

    Raises:
      One of `shard.db.errors`: the shard cannot be read.
    """
    return _grouped(_batches_of_shard(shard, criteria))


def _batches_of_shard(shard: Shard, criteria: DeadLetterFilter) -> Iterator[_Batch]:
    scanned = 0
    for page in dead_letter_batches(shard, criteria, scanned_max=SCANNED_PER_PAGE_MAX):
        scanned += page.scanned
        yield _Batch(page.items, scanned, page.next_key is None)


def read_groups_in_store(store: ExternalStore, criteria: DeadLetterFilter, *, now_us: int) -> DeadLetterGroups:
    """Group the matching dead letters of an external store, of its oldest `SCANNED_PER_PAGE_MAX`.

    Raises:
      StoreUnavailable: the store does not answer.
    """
    return _grouped(
        _Batch([row.dead_letter for row in each.rows if row.dead_letter is not None], each.scanned, each.whole)
        for each in read_batches(store, criteria, scanned_max=SCANNED_PER_PAGE_MAX, now_us=now_us)
    )


def _grouped(batches: Iterable[_Batch]) -> DeadLetterGroups:
    groups: dict[tuple[str, str], DeadLetterGroup] = {}
    scanned, whole, all_have_groups = 0, True, True
    for items, scanned, whole in batches:  # noqa: B007 - of the last one
        for item in items:
            kind, signature = item.record.item.kind, error_signature(item.record.error)
            failed_us = item.record.dead_lettered_us
            group = groups.get((kind, signature))
            if group is None:
                if len(groups) >= GROUPS_MAX:
                    all_have_groups = False
                    continue
                group = DeadLetterGroup(kind, signature, item.record.error, failed_us, failed_us)
                groups[kind, signature] = group
            group.add(item)
    return DeadLetterGroups(list(groups.values()), scanned, whole and all_have_groups)


def merged_groups(found: Iterable[DeadLetterGroups]) -> list[DeadLetterGroup]:
    """Return the groups of several shards and stores together, the largest first."""
    merged: dict[tuple[str, str], DeadLetterGroup] = {}
    for group in (each for shard in found for each in shard.groups):
        same = merged.setdefault((group.kind, group.signature), group)
        if same is not group:
            if group.last_us > same.last_us:
                same.last_us, same.example = group.last_us, group.example
            same.first_us = min(same.first_us, group.first_us)
            same.count += group.count
            same.tenants |= group.tenants
    return sorted(merged.values(), key=lambda each: (-each.count, -each.last_us, each.kind, each.signature))
