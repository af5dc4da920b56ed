"""Checks of the shard's index: each entry has its two keys, one beside the tenant's rows and one in the index."""

from functools import partial

from fairlead.zones.engines import KeyValue, Transaction
from fairlead.zones.keyspace import TenantKeys
from fairlead.zones.local_index import Entry, indexed_key, listing_key, parse_local_key
from fairlead.zones.maintenance.integrity.findings import Problem
from fairlead.zones.maintenance.integrity.records import check_damaged_key
from fairlead.zones.maintenance.integrity.walk import Check
from fairlead.zones.pipelining import Operation

NOT_IN_INDEX = "the shard's index does not find what a tenant holds"
DANGLING_ENTRY = "the shard's index names what its tenant does not hold"


def row_check(key: bytes) -> Check:
    """Return the check of a tenant's row in the subspace `INDEXED`. A repair writes the entry of the shard's index."""
    listed_key = listing_key(key)
    if listed_key is None:
        return partial(check_damaged_key, key=key, derived=True)
    return partial(_check_row, key=key, listed_key=listed_key)


def entry_check(row: KeyValue) -> Check:
    """Return the check of a row of the shard's index. A repair clears an entry without its twin."""
    entry = parse_local_key(row.key)
    if entry is None:
        return partial(check_damaged_key, key=row.key, derived=True)
    return partial(_check_entry, key=row.key, entry=entry)


def _check_row(tr: Transaction, *, key: bytes, listed_key: bytes) -> Operation[list[Problem]]:
    stored, listed = tr.get(key), tr.get(listed_key)
    yield
    if not stored.present() or listed.present():
        return []
    return [Problem(NOT_IN_INDEX, key, mend=lambda tr: tr.set(listed_key, b""))]


def _check_entry(tr: Transaction, *, key: bytes, entry: Entry) -> Operation[list[Problem]]:
    """Check an entry by its twin; both are there, too, of a tenant that has left and is not cleared."""
    listed = tr.get(key)
    stored = tr.get(indexed_key(TenantKeys(*entry.tenant), entry.index_key, entry.member))
    yield
    if not listed.present() or stored.present():
        return []
    return [Problem(DANGLING_ENTRY, key, mend=lambda tr: tr.clear(key))]
