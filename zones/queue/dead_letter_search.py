"""Finding dead letters of a shard by a filter, and retrying or discarding many at once.

The shard's index of dead letters is ordered by time and holds the kind of each. A search reads a bounded range of it,
and only those records that the index entry does not rule out. The next search continues where the last one stopped.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple, Self

from fairlead.zones.engines import Reader, Transaction
from fairlead.zones.errors import TenantMoved
from fairlead.zones.keyspace import pack_int
from fairlead.zones.layout import ShardLayout, Tenant, ZoneLocation
from fairlead.zones.ownership import check_owner
from fairlead.zones.pipelining import run_together
from fairlead.zones.queue import dead_letters
from fairlead.zones.queue.dead_letters import DeadLetter
from fairlead.zones.queue.index_scan import WANT_ALL
from fairlead.zones.queue.items import HasKind, kind_of
from fairlead.zones.queue.queue_zone import QueueZone
from fairlead.zones.records import DeadLetterRecord, decode

SCANNED_MAX = 500  # Dead letters that one transaction reads: with their records up to 8 MB, mostly a tenth of that.
BULK_ITEMS_MAX = 200  # Dead letters that one transaction retries or discards.


SIGNATURE_CHARACTERS = 160
READ_CHARACTERS = 240  # Of an error; its signature is mostly shorter.
SIGNATURES_KEPT = 8_192  # An open page computes those of the same 5,000 errors every few seconds. Some 4 MB.
NO_TEXT = "(no text)"  # The signature of an error without text: an empty one would match all errors.

_CONTROL = re.compile(r"[\x00-\x20\x7f]+")
# A quoted text, or a word with a digit, without the punctuation behind it. Each word is tried from its beginning only,
# and without going back, so that the time is linear: a page computes thousands of signatures.
_VARIABLE = re.compile(r"""'[^'\n]*'|"[^"\n]*"|(?<![\w.:-])(?:[^\W\d]|[.:-])*+\d(?:[\w.:-]*\w)?""")


def error_signature(error: str) -> str:
    """Return the first line of an error with `…` for each quoted text and each word with a digit.

    Errors that differ only in names, numbers and ids have one signature. The class of the error stays as it is.
    Control characters become spaces: forms of web pages change them.
    """
    return _signature(error.strip()[:READ_CHARACTERS].partition("\n")[0])


@lru_cache(SIGNATURES_KEPT)
def _signature(line: str) -> str:
    line = _CONTROL.sub(" ", line)
    name, colon, text = line.partition(": ")
    if " " in name or not colon:
        name, colon, text = "", "", line
    signature = name + colon + _VARIABLE.sub("…", text)
    return signature[:SIGNATURE_CHARACTERS].strip() or NO_TEXT


class DeadLetterFilter(NamedTuple):
    """Which dead letters match; a field that is None matches all.

    `kind`: the handler, or its kind. `tenant`: a `Tenant`, or "APP/USER". `error`: text that the error contains, as it
    was raised. `before_us`: dead since before then. `shard`: the name of a shard, for callers that search several; a
    search is in one. `signature`: of the error, see `error_signature`. `app`: all tenants of an app. `store`: the name
    of an external store, for callers that search several; then no shard is searched.
    """

    kind: str | HasKind | None = None
    tenant: Tenant | str | None = None
    zone: str | None = None
    error: str | None = None
    before_us: int | None = None
    shard: str | None = None
    signature: str | None = None
    app: str | None = None
    store: str | None = None

    def checked(self) -> Self:
        """Return the same filter with the name of the kind, and with the tenant as a `Tenant`.

        Raises:
          BadArgument: one of the two cannot be one.
        """
        kind = None if self.kind is None else kind_of(self.kind)
        if self.tenant is None or isinstance(self.tenant, Tenant):
            return self._replace(kind=kind)
        return self._replace(kind=kind, tenant=Tenant.parse(self.tenant))

    def may_match(self, tenant: Tenant, zone: str, kind: str) -> bool:
        """Say whether a dead letter may match by its index entry."""
        return (
            (self.kind is None or kind == self.kind)
            and (self.tenant is None or tenant == self.tenant)
            and (self.app is None or tenant.app == self.app)
            and (self.zone is None or zone == self.zone)
        )

    def matches(self, record: DeadLetterRecord) -> bool:
        """Say whether a dead letter that may match does."""
        return (self.error is None or self.error in record.error) and (
            self.signature is None or self.signature == error_signature(record.error)
        )


class DeadLetterPage(NamedTuple):
    """What a range of the index held. `next_key`: where to go on; None: that was all. `scanned`: how many entries."""

    items: list[DeadLetter]
    next_key: bytes | None
    scanned: int


def search(
    tr: Reader,
    layout: ShardLayout,
    criteria: DeadLetterFilter,
    *,
    items_max: int,
    next_key: bytes | None = None,
    latest_first: bool = False,
    scanned_max: int = SCANNED_MAX,
) -> DeadLetterPage:
    """Return the dead letters that match, of the first `scanned_max` from `next_key` on.

    Snapshot reads. One that a newer version wrote, or that is damaged, is passed over.
    """
    begin, end = dead_letters.dead_letter_index_range()
    if criteria.before_us is not None:
        end = begin + pack_int(max(0, criteria.before_us))
    if next_key is not None:
        begin, end = (begin, min(end, next_key)) if latest_first else (max(begin, next_key), end)
    if begin >= end:
        return DeadLetterPage([], None, 0)
    snapshot = tr.snapshot
    rows = list(snapshot.get_range(begin, end, limit=scanned_max, reverse=latest_first, streaming_mode=WANT_ALL))
    reads = []
    for scanned, row in enumerate(rows, start=1):
        entry = dead_letters.parse_dead_letter_index_key(row.key, layout)
        if entry is None:
            continue
        location, item_id = entry
        if criteria.may_match(location.tenant, location.name, row.value.decode(errors="replace")):
            reads.append((scanned, location, item_id, snapshot.get(location.keys.dead_letter(item_id))))
    items = []
    for scanned, location, item_id, read in reads:
        record = None if read.value is None else decode(DeadLetterRecord, read.value)
        if record is None or not criteria.matches(record):
            continue
        items.append(DeadLetter(location.tenant, location.name, item_id, record))
        if len(items) == items_max:
            return DeadLetterPage(items, _behind(rows[scanned - 1].key, latest_first), scanned)
    whole = len(rows) < scanned_max
    return DeadLetterPage(items, None if whole else _behind(rows[-1].key, latest_first), len(rows))


def retry_dead_letters(
    tr: Transaction, layout: ShardLayout, items: Sequence[DeadLetter], *, now_us: int
) -> list[DeadLetter]:
    """Put dead letters back into their queues, due now, and wake their pointers; return those that were put back.

    Left out are those that are no longer there, that failed again since, or whose tenant has moved. Reads with
    conflict: the tenants' ownership, the dead letters, the pointers as `pointers.read_for_insert` says. May run twice.
    """
    retried = _still_dead_letters(tr, layout, items)
    zones: dict[tuple[Tenant, str], QueueZone] = {}
    for location, item, record in retried:
        dead_letters.retry_dead_letter(tr, location, item.id, record, now_us=now_us)
        zones[location.tenant, location.name] = QueueZone(layout, location.tenant, location.name)
    run_together([zone.wake_op(tr, earliest_us=now_us, now_us=now_us) for zone in zones.values()])
    return [item for _, item, _ in retried]


def discard_all(tr: Transaction, layout: ShardLayout, items: Sequence[DeadLetter], *, now_us: int) -> list[DeadLetter]:
    """Delete dead letters; return those deleted.

    Leaves out, and reads with conflict, as `retry_dead_letters`; of a run that keeps keys see `end_run_op`.
    """
    discarded = _still_dead_letters(tr, layout, items)
    for location, item, record in discarded:
        dead_letters.discard(tr, location, item.id, record, now_us=now_us)
    return [item for _, item, _ in discarded]


def _still_dead_letters(
    tr: Transaction, layout: ShardLayout, items: Sequence[DeadLetter]
) -> list[tuple[ZoneLocation, DeadLetter, DeadLetterRecord]]:
    locations = [layout.location(item.tenant, item.zone) for item in items]
    reads = [
        (tr.get(location.keys.tenant.owner), tr.get(location.keys.dead_letter(item.id)))
        for location, item in zip(locations, items, strict=True)
    ]
    found = []
    for location, item, (owner, stored) in zip(locations, items, reads, strict=True):
        try:
            check_owner(tr, layout, location.keys.tenant, owner.value)
        except TenantMoved:
            continue
        record = None if stored.value is None else decode(DeadLetterRecord, stored.value)
        if record is not None and record.dead_lettered_us == item.record.dead_lettered_us:
            found.append((location, item, record))
    return found


def _behind(key: bytes, latest_first: bool) -> bytes:
    return key if latest_first else key + b"\x00"
