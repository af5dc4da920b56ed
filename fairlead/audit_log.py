"""The log of deeds of all shards: what operators have done, the latest first."""

from collections.abc import Mapping
from typing import NamedTuple

from fairlead.zones.records import AuditEntry
from fairlead.zones.reporting import audit_log
from fairlead.zones.shard import Shard

NOT_ENDED = "broken off, or not over"  # What is said of a bulk that has not come to its end.
ITEM_ACTIONS = ("revive", "discard", "cancel")  # Deeds to items; the others are rules, and say nothing of a count.


class MergedEntry(NamedTuple):
    """A deed, and the shards that it was done to. `items`: how many on all of them; of a rule 1."""

    audit_entry: AuditEntry
    shards: tuple[str, ...]
    items: int
    ended: bool

    @property
    def target(self) -> str:
        """To what it was done, in a line."""
        return target_text(self.audit_entry.to)


def read_log(shards: Mapping[str, Shard], *, entries_max: int) -> list[MergedEntry]:
    """Return the last deeds of each shard, the latest first; one that was done to several shards comes once."""
    return merge_entries(
        {
            name: [
                each.audit_entry
                for each in shards[name].transact(lambda attempt: audit_log.latest(attempt.tr, entries_max=entries_max))
            ]
            for name in shards
        }
    )


def merge_entries(by_shard: Mapping[str, list[AuditEntry]]) -> list[MergedEntry]:
    """Return the deeds of some shards as entries, the latest first."""
    merged_entries: dict[bytes, MergedEntry] = {}
    for name, found in by_shard.items():
        for audit_entry in found:
            merged_entry = merged_entries.get(audit_entry.id)
            if merged_entry is None:
                merged_entries[audit_entry.id] = MergedEntry(audit_entry, (name,), audit_entry.count, audit_entry.ended)
            else:
                items = (
                    merged_entry.items + audit_entry.count if audit_entry.what in ITEM_ACTIONS else merged_entry.items
                )
                merged_entries[audit_entry.id] = MergedEntry(
                    audit_entry, (*merged_entry.shards, name), items, merged_entry.ended and audit_entry.ended
                )
    return sorted(merged_entries.values(), key=lambda each: -each.audit_entry.done_us)


def target_text(to: Mapping[str, object]) -> str:
    """Return to what a deed was done in a line: "tenant shop/alice, item 17f0...". What is not set is left out."""
    said = []
    for name, value in to.items():
        if value is None:
            continue
        text = "/".join(map(str, value)) if isinstance(value, list | tuple) else _plain(value)
        said.append(f"{name.replace('_', ' ')} {text}")
    return ", ".join(said) or "everything"


def _plain(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
