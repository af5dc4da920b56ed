"""Checks of counts: those of a zone equal its items, those of a part the counts of its zones.

Correct operations change a count together with its items, so the difference of the two never changes. A wrong count is
repaired by adding the difference. This conflicts with nothing, and concurrent changes do not matter.

What fits one transaction is counted in one, and so is exact. What is larger is counted over many transactions, twice.
The result is used only if both passes saw the same rows and counts; otherwise it is unverified.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from hashlib import blake2b
from typing import NamedTuple

from fairlead.zones.engines import Database, KeyValue, Reader, transact
from fairlead.zones.keyspace import COUNT, DEPTH, ROOT, pack_int, range_begin, range_end, unpack_name
from fairlead.zones.layout import ShardLayout, ZoneLocation
from fairlead.zones.maintenance.integrity.findings import Problem, Report
from fairlead.zones.maintenance.integrity.parsed_keys import KeyParser, tenant_range
from fairlead.zones.maintenance.integrity.residents import Residents, lives_here
from fairlead.zones.maintenance.integrity.walk import Chunk, Skip, nothing, read_chunk
from fairlead.zones.queue.index_scan import WANT_ALL
from fairlead.zones.queue.stored_item import number_of
from fairlead.zones.records import ItemRecord, decode
from fairlead.zones.shard import Shard
from fairlead.zones.transaction_runner import Attempt

WRONG_COUNT = "a count differs from the items"
WRONG_DEPTH = "a depth differs from the items"

EXACT_KEYS_MAX = 20_000  # Well under a second, on any engine.
EXACT_BYTES_MAX = 8_000_000
PASSES_MAX = 3

Counts = Mapping[bytes, int]  # key of a count -> its value, or the value that it should have


Add = Callable[[list[KeyValue], Counter[bytes]], bool]


class Recount(NamedTuple):
    """What to add up, and the counts that should be equal to it.

    `begin_pass()` returns what adds up the rows of one pass, chunk by chunk: `add(rows, sums)` is False if it cannot
    say which count a row belongs to. `vanishes`: a count of zero has no key. `base`: the initial values of the sums.
    """

    what: str
    location: ZoneLocation | None
    rows: tuple[bytes, bytes]
    skip: Skip
    begin_pass: Callable[[], Add]
    stored: tuple[bytes, bytes]
    vanishes: bool
    base: Counts


def recount_of_zone(location: ZoneLocation) -> Recount:
    """Return the recount of a zone: its items by kind."""
    prefix = location.keys.count_prefix()

    def add(rows: list[KeyValue], sums: Counter[bytes]) -> bool:
        return add_items(location, rows, sums)

    stored = (range_begin(prefix), range_end(prefix))
    rows = location.keys.item_range()
    return Recount(WRONG_COUNT, location, rows, nothing, lambda: add, stored, vanishes=True, base={})


def recount_of_shard(layout: ShardLayout, corrections: Counts) -> Recount:
    """Return the recount of a shard: the counts of all zones by part and kind, of the tenants who live there.

    `corrections`: by what the depths must differ from the counts, because some counts are known to be wrong.
    """
    parser = KeyParser(layout)

    def skip(key: bytes) -> bytes | None:
        found = parser.zone_key(key)
        if found is None or found.number == COUNT:
            return None
        return found.location.keys.count_prefix() if found.number < COUNT else range_end(found.location.keys.prefix)

    def begin_pass() -> Add:
        residents = Residents(layout, with_arriving=True)

        def add(rows: list[KeyValue], sums: Counter[bytes]) -> bool:
            for row in residents.rows(rows):
                found = parser.zone_key(row.key)
                kind = None if found is None else unpack_name(row.key, len(found.location.keys.count_prefix()))
                if found is not None and kind is not None:
                    sums[found.location.part.depth(kind)] += number_of(row.value)
            residents.go_on_after(rows)
            return True

        return add

    prefix = ROOT + pack_int(DEPTH)
    stored = (range_begin(prefix), range_end(prefix))
    return Recount(WRONG_DEPTH, None, tenant_range(), skip, begin_pass, stored, vanishes=False, base=corrections)


def add_items(location: ZoneLocation, rows: list[KeyValue], sums: Counter[bytes]) -> bool:
    """Add item records of a zone to their counts; False if a record cannot be read."""
    for row in rows:
        record = decode(ItemRecord, row.value)
        if record is None:
            return False
        sums[location.keys.count(record.kind)] += 1
    return True


def differences(recount: Recount, sums: Counts, stored: Counts) -> Counts:
    """Return what must be added to each wrong count; 0 for a key that should not exist."""
    wrong = {}
    for key in sums.keys() | stored.keys():
        missing = sums.get(key, 0) - stored.get(key, 0)
        if missing or (recount.vanishes and stored.get(key) == 0):
            wrong[key] = missing
    return wrong


def verify_counts(shard: Shard, recount: Recount, report: Report, *, repair: bool) -> Counts:
    """Recount, compare, report differences, and repair them if `repair`. Return the differences.

    A difference is added once, even after a commit of unknown result: each transaction that repairs has a receipt.
    """
    wrong = _verify_at_once(shard, recount, repair=repair)
    if wrong is None:
        wrong = _verify_over_time(shard, recount, repair=repair)
    if wrong is None:
        report.unverified += 1
        return {}
    for key in sorted(wrong):
        report.add(Problem(recount.what, key, recount.location, mend=_mend_nothing), repaired=repair)
    return wrong


def _verify_at_once(shard: Shard, recount: Recount, *, repair: bool) -> Counts | None:
    """Verify in one transaction; None if that is not possible."""

    def body(attempt: Attempt) -> Counts | None:
        tr = attempt.tr
        chunk = _chunk(tr, recount, recount.rows[0])
        sums = Counter(recount.base)
        if chunk.next_key is not None or not recount.begin_pass()(chunk.rows, sums):
            return None
        wrong = differences(recount, sums, _stored(tr, recount))
        return _settle(attempt, shard.layout, recount, wrong, repair=repair)

    return shard.transact(body)


class _Pass(NamedTuple):
    """What one pass over the rows saw."""

    sums: Counter[bytes]
    fingerprint: bytes
    stored: Counts


def _verify_over_time(shard: Shard, recount: Recount, *, repair: bool) -> Counts | None:
    """Verify what is too large for one transaction; None if it kept changing, or cannot be read."""
    last: _Pass | None = None
    for _ in range(PASSES_MAX):
        this = _pass(shard.db, recount)
        if this is None:
            return None
        if this == last:
            wrong = differences(recount, this.sums, this.stored)
            return shard.transact(
                lambda attempt: _settle(attempt, shard.layout, recount, wrong, repair=repair)  # noqa: B023
            )
        last = this
    return None


def _pass(db: Database, recount: Recount) -> _Pass | None:
    stored = transact(db, partial(_stored, recount=recount))
    sums = Counter(recount.base)
    fingerprint = blake2b(digest_size=16)
    add = recount.begin_pass()
    next_key: bytes | None = recount.rows[0]
    while next_key is not None:
        chunk = transact(db, partial(_chunk, recount=recount, begin=next_key))
        if not add(chunk.rows, sums):
            return None
        for row in chunk.rows:
            fingerprint.update(row.key)
        next_key = chunk.next_key
    return _Pass(sums, fingerprint.digest(), stored)


def _chunk(tr: Reader, recount: Recount, begin: bytes) -> Chunk:
    return read_chunk(tr, begin, recount.rows[1], recount.skip, keys_max=EXACT_KEYS_MAX, bytes_max=EXACT_BYTES_MAX)


def _stored(tr: Reader, recount: Recount) -> Counts:
    rows = tr.snapshot.get_range(*recount.stored, streaming_mode=WANT_ALL)
    return {row.key: number_of(row.value) for row in rows}


def _settle(attempt: Attempt, layout: ShardLayout, recount: Recount, wrong: Counts, *, repair: bool) -> Counts:
    """Return the differences, and repair them if `repair`. None counts in a zone whose tenant has moved away since."""
    location = recount.location
    if location is not None and not lives_here(attempt.tr, layout, location.keys.prefix, writes=repair and bool(wrong)):
        return {}
    if repair:
        _mend(attempt, recount, wrong)
    return wrong


def _mend(attempt: Attempt, recount: Recount, wrong: Counts) -> None:
    tr = attempt.tr
    for key, missing in wrong.items():
        attempt.needs_receipt = True  # A difference that is added twice would be a new error.
        tr.add(key, (missing % 2**64).to_bytes(8, "little"))  # The count may be any number if it was damaged.
        if recount.vanishes:
            tr.compare_and_clear(key, bytes(8))
        # Of two checks that repair the same count at once, only one may add: they conflict on a key that holds no
        # value.
        tr.add_read_conflict_key(key + b"\x00")
        tr.add_write_conflict_key(key + b"\x00")


def _mend_nothing(tr: Reader) -> None:
    """Stand for a repair that `verify_counts` makes itself."""
