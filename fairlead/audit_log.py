"""The audit log of all shards: what operators have done, the latest first."""

from collections.abc import Mapping
from typing import NamedTuple

from fairlead.zones.layout import Tenant
from fairlead.zones.records import AuditEntry
from fairlead.zones.reporting import audit_log
from fairlead.zones.shard import Shard

NOT_ENDED = "interrupted, or still running"  # Shown for a bulk operation without an end.
ITEM_ACTIONS = (
    "retry",
    "discard",
    "cancel",
    "force cancel",
    "signal",
)  # These count items; all others change a policy.
_EARLIER_NAMES = {"revive": "retry", "weigh": "set weight"}  # As earlier versions wrote them.


class MergedEntry(NamedTuple):
    """An audit entry, and the shards that have it. `items`: how many items on all of them; 1 for a policy."""

    audit_entry: AuditEntry
    shards: tuple[str, ...]
    items: int
    ended: bool

    @property
    def action(self) -> str:
        """What was done: "pause", "retry", ..."""
        return action_of(self.audit_entry)

    @property
    def target(self) -> str:
        """What it was done to, in one line."""
        return target_text(self.audit_entry.to)


def action_of(audit_entry: AuditEntry) -> str:
    """Return what was done, by its present name."""
    return _EARLIER_NAMES.get(audit_entry.what, audit_entry.what)


def read_log(shards: Mapping[str, Shard], *, entries_max: int) -> list[MergedEntry]:
    """Return the last entries of each shard, the latest first; an entry of several shards appears once."""
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
    """Merge the entries of some shards, the latest first."""
    merged_entries: dict[bytes, MergedEntry] = {}
    for name, found in by_shard.items():
        for audit_entry in found:
            merged_entry = merged_entries.get(audit_entry.id)
            if merged_entry is None:
                merged_entries[audit_entry.id] = MergedEntry(audit_entry, (name,), audit_entry.count, audit_entry.ended)
            else:
                counts_items = action_of(audit_entry) in ITEM_ACTIONS
                items = merged_entry.items + audit_entry.count if counts_items else merged_entry.items
                merged_entries[audit_entry.id] = MergedEntry(
                    audit_entry, (*merged_entry.shards, name), items, merged_entry.ended and audit_entry.ended
                )
    return sorted(merged_entries.values(), key=lambda each: -each.audit_entry.done_us)


def target_text(to: Mapping[str, object]) -> str:
    """Return the target of an action in one line: "tenant shop/alice, item 17f0...". Empty fields are left out."""
    parts = []
    for name, value in to.items():
        if value is None:
            continue
        text = str(Tenant(*map(str, value))) if isinstance(value, list | tuple) and len(value) == 2 else _plain(value)
        parts.append(f"{name.replace('_', ' ')} {text}")
    return ", ".join(parts) or "everything"


def _plain(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
