"""Where copies lie, and how a copy is stored: as the value that the key had, or as the mark that there was none.

A copy's key is that of the tenant's own key, with (SNAP, number) in place of DATA. So copies of one snapshot sort as
the keys do, and are at most eight bytes longer.
"""

from fairlead.zones.keyspace import ROOT, SNAPSHOT_WORK, TenantKeys, pack_int, range_end, unpack_int, unpack_names

WORK_PREFIX = ROOT + pack_int(SNAPSHOT_WORK)
# Stands for no value. A value that begins so is stored behind one more. A byte in front of each value would not do:
# a value may be as long as the store takes.
NONE_MARK = b"\xff\x00fairlead: none\x00\xff"


def pack_copy(value: bytes | None) -> bytes:
    """Return a value, or that there is none, as a copy is stored."""
    if value is None:
        return NONE_MARK
    return NONE_MARK + value if value.startswith(NONE_MARK) else value


def unpack_copy(copy: bytes) -> bytes | None:
    """Return what `pack_copy` packed."""
    if not copy.startswith(NONE_MARK):
        return copy
    return copy[len(NONE_MARK) :] or None


def copies_prefix(keys: TenantKeys, number: int) -> bytes:
    """Return what stands in a copy's key in place of `keys.data`."""
    return keys.snapshots + pack_int(number)


def copies_range(keys: TenantKeys, number: int) -> tuple[bytes, bytes]:
    """Return begin and end of the copies of a snapshot."""
    prefix = copies_prefix(keys, number)
    return prefix + b"\x00", range_end(prefix)


def number_of_copy(keys: TenantKeys, key: bytes) -> tuple[int, int] | None:
    """Return the number of the snapshot that a copy's key names, and where the number ends; None: it names none."""
    return unpack_int(key, len(keys.snapshots))


def work_key(due_us: int, keys: TenantKeys) -> bytes:
    """Return the key that lists a tenant for housekeeping."""
    return WORK_PREFIX + pack_int(due_us) + keys.packed


def listed_work(key: bytes) -> tuple[int, TenantKeys] | None:
    """Return when a tenant is due, and its keys, from the key that lists it; None: the key is damaged."""
    due = unpack_int(key, len(WORK_PREFIX))
    names = None if due is None else unpack_names(key, due[1], 2)
    if due is None or names is None or names[1] != len(key):
        return None
    keys = TenantKeys(*names[0])
    return (due[0], keys) if work_key(due[0], keys) == key else None
