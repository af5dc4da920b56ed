"""Timesheets: what each worker writes about itself every second or so, for people who look.

    (ROOT, SHEET, worker's life) -> where the worker is, its slots, and the items that have run there longest

Soft state, as a consumer's sign of life is: whether an item runs, and who holds it, its own record says. Without sheets
one would have to look through all queues for the items that run. What the workers have done over time is in `series`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from fairlead.zones.engines import Reader, Transaction
from fairlead.zones.keyspace import ROOT, SHEET, pack_bytes, pack_int, range_begin, range_end
from fairlead.zones.layout import Tenant
from fairlead.zones.queue.index_scan import WANT_ALL
from fairlead.zones.records import Count, Progress, TimeUs, pack_value, unpacked

SHEET_US = 1_000_000  # How often a worker writes, while it does anything.
LIVE_US = 5_000_000  # A sheet of running items that is older is that of a dead worker.
FORGET_US = 60_000_000
RUNNING_MAX = 50  # On one sheet, those that have run longest.

_PREFIX = ROOT + pack_int(SHEET)


class Running(msgspec.Struct, array_like=True, gc=False):
    """An item that runs. Times in microseconds since the epoch, by the worker's clock."""

    app: str
    user: str
    zone: str
    item_id: bytes
    kind: str
    attempt: Count
    since_us: TimeUs
    lease_until_us: TimeUs
    progress: Progress | None = None

    @property
    def tenant(self) -> Tenant:
        """Whose item it is."""
        return Tenant(self.app, self.user)


class Timesheet(msgspec.Struct, array_like=True):
    """A worker at a moment. `busy`: how many of its `slots` run an item, of any shard."""

    consumer_id: bytes
    host: str
    pid: int
    slots: int
    busy: int
    written_us: TimeUs
    running: list[Running]


class RunningAt(NamedTuple):
    """An item that runs, and the sheet of the worker that runs it."""

    sheet: Timesheet
    item: Running


_decoder = msgspec.msgpack.Decoder(Timesheet)


def write(tr: Transaction, life: bytes, sheet: Timesheet) -> None:
    """Write a worker's sheet, in place of what it wrote before. A blind write; may run twice."""
    tr.set(_PREFIX + pack_bytes(life), pack_value(sheet))


def read(tr: Reader, *, now_us: int, sheets_max: int = 1_000) -> list[Timesheet]:
    """Return the sheets of workers that have written lately, or run nothing. Snapshot reads."""
    rows = tr.snapshot.get_range(range_begin(_PREFIX), range_end(_PREFIX), limit=sheets_max, streaming_mode=WANT_ALL)
    sheets = [sheet for row in rows if (sheet := unpacked(_decoder, row.value)) is not None]
    return [sheet for sheet in sheets if not sheet.running or now_us - sheet.written_us <= LIVE_US]


def longest_running(sheets: Sequence[Timesheet], *, items_max: int) -> list[RunningAt]:
    """Return what runs, the longest running first."""
    running = [RunningAt(sheet, item) for sheet in sheets for item in sheet.running]
    return sorted(running, key=lambda each: (each.item.since_us, each.item.item_id))[:items_max]


def clear_old(tr: Transaction, *, now_us: int, keys_max: int) -> None:
    """Clear up to `keys_max` sheets that nobody has written on for a minute. Snapshot reads; may run twice."""
    rows = tr.snapshot.get_range(range_begin(_PREFIX), range_end(_PREFIX), limit=keys_max, streaming_mode=WANT_ALL)
    for row in rows:
        sheet = unpacked(_decoder, row.value)
        if sheet is not None and now_us - sheet.written_us > FORGET_US:
            tr.clear(row.key)


def is_readable(value: bytes) -> bool:
    """Say whether a value is a worker's sheet."""
    return unpacked(_decoder, value) is not None
