"""Checks of single records and keys: they can be read, or a newer version wrote them."""

from collections.abc import Callable

from fairlead.zones.engines import Transaction
from fairlead.zones.maintenance.integrity.findings import Problem, pair
from fairlead.zones.pipelining import Operation
from fairlead.zones.records import FORMAT, RESTRICTED_FORMAT, OwnerRecord, Record, decode, is_newer

DAMAGED_RECORD = "a record is damaged"
DAMAGED_KEY = "a key is damaged"


def check_record(tr: Transaction, struct: type[Record], key: bytes) -> Operation[list[Problem]]:
    """Check that a record can be read, unless a newer version wrote it."""
    stored = tr.get(key)
    yield
    newest = RESTRICTED_FORMAT if struct is OwnerRecord else FORMAT
    if stored.value is None or decode(struct, stored.value) is not None or is_newer(stored.value, newest=newest):
        return []
    return [Problem(DAMAGED_RECORD, key, aside=[pair(key)])]


def check_value(
    tr: Transaction, readable: Callable[[bytes], bool], key: bytes, *, has_format: bool = True
) -> Operation[list[Problem]]:
    """Check that a value that is no `Record` can be read, unless a newer version wrote it.

    `has_format`: it begins with the number of its format, by which a newer one is known.
    """
    stored = tr.get(key)
    yield
    if stored.value is None or readable(stored.value) or (has_format and is_newer(stored.value)):
        return []
    return [Problem(DAMAGED_RECORD, key, aside=[pair(key)])]


def check_soft_record(tr: Transaction, readable: Callable[[bytes], bool], key: bytes) -> Operation[list[Problem]]:
    """Check a record that its owner rewrites continually; a damaged one may be deleted."""
    stored = tr.get(key)
    yield
    if stored.value is None or readable(stored.value) or is_newer(stored.value):
        return []
    return [Problem(DAMAGED_RECORD, key, mend=lambda tr: tr.clear(key))]


def check_damaged_key(tr: Transaction, key: bytes, *, derived: bool = False) -> Operation[list[Problem]]:
    """Report a key that no program can have written. `derived`: other keys imply its value, so it may be deleted."""
    present = tr.get(key)
    yield
    if present.value is None:
        return []
    if derived:
        return [Problem(DAMAGED_KEY, key, mend=lambda tr: tr.clear(key))]
    return [Problem(DAMAGED_KEY, key, aside=[pair(key)])]
