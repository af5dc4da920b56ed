"""Violations: records that were left without a value of a unique field, because another record has it.

Each is an entry of its shard's own index (`fairlead.zones.local_index`), beside the record, so that it moves with it:

    index   (type, "", field, value); no field has an empty name
    member  the primary key
"""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from fairlead.records.alternate_keys import AlternateValue, field_of, value_of
from fairlead.zones.keyspace import pack_text
from fairlead.zones.layout import Tenant
from fairlead.zones.local_index import Page, find_op, move_count_op
from fairlead.zones.pipelining import run_one
from fairlead.zones.shard import Shard
from fairlead.zones.tenant_transaction import TenantTransaction, add_to_local_index, remove_from_local_index
from fairlead.zones.transaction_runner import Attempt

ENTRIES_AT_ONCE = 500
_TEXT = pack_text("")[:1]  # How the name of a field begins.


class ViolationEntry(NamedTuple):
    """A record that was left without a value. `index_key`: the key that the value would be."""

    shard: str
    tenant: Tenant
    key: str
    index_key: bytes

    @property
    def field(self) -> str:
        """The field."""
        return field_of(self.index_key)

    @property
    def value(self) -> AlternateValue | None:
        """The value, as it is compared; None: it is long, and only its hash is stored."""
        return value_of(self.index_key)


def note_violation(view: TenantTransaction, type_name: str, key: str, index_key: bytes) -> None:
    """Write the entry of a violation. `view`: of the tenant that holds the record. May run twice."""
    add_to_local_index(view, _index(type_name, index_key), key.encode())


def forget_violation(view: TenantTransaction, type_name: str, key: str, index_key: bytes) -> None:
    """Clear the entry of a violation, if there is one. May run twice."""
    remove_from_local_index(view, _index(type_name, index_key), key.encode())


def violations_on(shard: Shard, type_name: str, field: str | None = None) -> Iterator[ViolationEntry]:
    """Yield the violations of records that lie on a shard, by field and value. Snapshot reads, in pages."""
    prefix = _index(type_name, b"" if field is None else pack_text(field))
    next_key: bytes | None = None
    while True:
        page: Page = shard.transact(partial(_page, prefix=prefix, next_key=next_key))
        for entry in page.entries:
            index_key = violation_of(entry.index_key)
            if index_key is not None:
                yield ViolationEntry(shard.name, entry.tenant, entry.member.decode(), index_key)
        if page.next_key is None:
            return
        next_key = page.next_key


def violation_of(index: bytes) -> bytes | None:
    """Return the index key that a record lacks, by the index of its entry; None: the entry says something else."""
    index_key = index[index.index(b"\x00") + 1 :].removeprefix(pack_text(""))
    has_no_field = len(index_key) < len(index) - index.index(b"\x00") - 1
    return index_key if has_no_field and index_key.startswith(_TEXT) else None  # Else it is a mark, see `repairing`.


def move_count(shard: Shard) -> int:
    """Return the count of moves of a shard: if one has changed, an entry may have been missed."""
    return shard.transact(lambda attempt: run_one(move_count_op(attempt.tr)))


def _page(attempt: Attempt, *, prefix: bytes, next_key: bytes | None) -> Page:
    return run_one(find_op(attempt.tr, prefix, entries_max=ENTRIES_AT_ONCE, next_key=next_key, longer=True))


def _index(type_name: str, index_key: bytes) -> bytes:
    return pack_text(type_name) + pack_text("") + index_key
