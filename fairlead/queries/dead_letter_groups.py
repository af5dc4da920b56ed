"""Dead letters in groups: those of one kind whose errors have one signature."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from fairlead.queries.tenants import SCANNED_PER_PAGE_MAX, dead_letter_batches
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
    """The groups of a shard, of the latest `scanned` dead letters. `whole`: whether these are all."""

    groups: list[DeadLetterGroup]
    scanned: int
    whole: bool


def read_groups(shard: Shard, criteria: DeadLetterFilter) -> DeadLetterGroups:
    """Group the matching dead letters of a shard, of its latest `SCANNED_PER_PAGE_MAX`.

    Snapshot reads, a stretch of dead letters in each transaction.

    Raises:
      One of `shard.db.errors`: the shard cannot be read.
    """
    groups: dict[tuple[str, str], DeadLetterGroup] = {}
    scanned, whole = 0, True
    for page in dead_letter_batches(shard, criteria, scanned_max=SCANNED_PER_PAGE_MAX):
        scanned += page.scanned
        whole = page.next_key is None
        for item in page.items:
            kind, signature = item.record.item.kind, error_signature(item.record.error)
            failed_us = item.record.dead_lettered_us
            group = groups.get((kind, signature))
            if group is None:
                if len(groups) >= GROUPS_MAX:
                    whole = False
                    continue
                group = DeadLetterGroup(kind, signature, item.record.error, failed_us, failed_us)
                groups[kind, signature] = group
            group.add(item)
    return DeadLetterGroups(list(groups.values()), scanned, whole)


def merged_groups(found: Iterable[DeadLetterGroups]) -> list[DeadLetterGroup]:
    """Return the groups of several shards together, the largest first."""
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
