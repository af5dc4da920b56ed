"""The log of deeds of all shards: what operators have done, the latest first."""

from collections.abc import Mapping
from typing import NamedTuple

from fairlead.zones.records import DeedRecord
from fairlead.zones.reporting import audit_log
from fairlead.zones.shard import Shard

NOT_ENDED = "broken off, or not over"  # What is said of a bulk that has not come to its end.
ONE_BY_ONE = ("revive", "discard", "cancel")  # Deeds to items; the others are rules, and say nothing of a count.


class Entry(NamedTuple):
    """A deed, and the shards that it was done to. `items`: how many on all of them; of a rule 1."""

    deed: DeedRecord
    shards: tuple[str, ...]
    items: int
    ended: bool

    @property
    def said(self) -> str:
        """To what it was done, in a line."""
        return in_words(self.deed.to)


def read_log(shards: Mapping[str, Shard], *, deeds_max: int) -> list[Entry]:
    """Return the last deeds of each shard, the latest first; one that was done to several shards comes once."""
    return merged(
        {
            name: [
                each.deed
                for each in shards[name].transact(lambda attempt: audit_log.latest(attempt.tr, deeds_max=deeds_max))
            ]
            for name in shards
        }
    )


def merged(by_shard: Mapping[str, list[DeedRecord]]) -> list[Entry]:
    """Return the deeds of some shards as entries, the latest first."""
    entries: dict[bytes, Entry] = {}
    for name, found in by_shard.items():
        for deed in found:
            entry = entries.get(deed.id)
            if entry is None:
                entries[deed.id] = Entry(deed, (name,), deed.count, deed.ended)
            else:
                items = entry.items + deed.count if deed.what in ONE_BY_ONE else entry.items
                entries[deed.id] = Entry(deed, (*entry.shards, name), items, entry.ended and deed.ended)
    return sorted(entries.values(), key=lambda each: -each.deed.done_us)


def in_words(to: Mapping[str, object]) -> str:
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
