"""Items that are enqueued all the while, and what must have become of them at the end."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from itertools import accumulate
from pathlib import Path
from types import TracebackType

from fairlead import App, TenantTransaction, new_item
from fairlead.status import read_status
from fairlead.zones.engines import transact
from fairlead.zones.keyspace import DB, DEAD_LETTER_INDEX, DEPTH, ROOT, ROOT_RANGE, TOP, ZONE
from fairlead.zones.maintenance.integrity import check_integrity
from fairlead.zones.tuples import unpack
from tests.acceptance.fleets import eventually
from tests.acceptance.shop import payload

TENANTS = 20
NOTHING: Mapping[int, str] = {}
BATCH = 10


class Load:
    """A thread that enqueues items of several kinds for several tenants until it is told to stop.

    `enqueued`: the numbers of items that were acknowledged, and their kinds. `doubtful`: those of enqueues that ended
    with one of the `survives` errors, of which nobody knows.
    """

    def __init__(self, app: App, *, per_s: int, kinds: tuple[str, ...] = ("transactional", "plain", "fenced", "async"),
                 takes_ms: int = 2, survives: tuple[type[Exception], ...] = ()) -> None:  # fmt: skip
        self.enqueued: dict[int, str] = {}
        self.doubtful: dict[int, str] = {}
        self._survives = survives
        self._app = app
        self._pause_s = BATCH / per_s
        self._kinds = kinds
        self._takes_ms = takes_ms
        self._stopped = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="load")

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stopped.set()
        self._thread.join()
        if error is None and self._error is not None:
            raise self._error

    def _run(self) -> None:
        number = 0
        try:
            while not self._stopped.wait(self._pause_s):
                numbers = range(number, number + BATCH)
                kinds = [self._kinds[each % len(self._kinds)] for each in numbers]
                items = [
                    new_item(kind, payload(each, takes_ms=self._takes_ms))
                    for each, kind in zip(numbers, kinds, strict=True)
                ]
                tenant = self._app.tenant("shop", f"user {number // BATCH % TENANTS}")
                known = self.enqueued
                try:
                    tenant.enqueue_many(items)
                except self._survives:
                    known = self.doubtful
                known.update(zip(numbers, kinds, strict=True))
                number += BATCH
        except BaseException as error:  # noqa: BLE001 - raised again where the load is stopped
            self._error = error


def effects(app: App) -> tuple[Counter[int], Counter[int]]:
    """Return how often each number was done together with its completion, and how often it ran."""
    done: Counter[int] = Counter()
    ran: Counter[int] = Counter()

    def body(tr: TenantTransaction) -> list[tuple[tuple[object, ...], bytes]]:
        return list(tr.get_range((), snapshot=True))

    for user in range(TENANTS):
        for key, value in app.tenant("shop", f"user {user}").transact(body):
            seen = done if key[0] == "done" else ran
            seen[int(str(key[1]))] += int.from_bytes(value, "little")
    return done, ran


def depth(app: App) -> int:
    """Return how many items there are on all shards."""
    return sum(sum(read_status(app.shards[name], "").depth.values()) for name in app.shards)


def wait_until_none_is_left(app: App, *, within_s: float) -> None:
    """Wait until there are no items; fail if for `within_s` none has ended. A slow machine takes long for many."""
    left, until = depth(app), time.monotonic() + within_s
    while left:
        assert time.monotonic() < until, f"{left} items are left, of which none has ended for {within_s:g} s"
        time.sleep(0.02)
        before, left = left, depth(app)
        if left < before:
            until = time.monotonic() + within_s


def assert_all_done(
    app: App, enqueued: dict[int, str], *, doubtful: Mapping[int, str] = NOTHING, within_s: float = 60.0
) -> None:
    """Wait until every item is gone; then check that each took effect, and each transactional one exactly once.

    What is `doubtful` may have been enqueued or not: if it was, the same holds.
    """
    wait_until_none_is_left(app, within_s=within_s)
    done, ran = effects(app)
    there = {**enqueued, **{number: kind for number, kind in doubtful.items() if number in done or number in ran}}
    once = {number for number, kind in there.items() if kind in ("transactional", "fenced")}
    at_least_once = set(there) - once
    assert set(done) == once, "some are lost, or of another load"
    assert {number for number, count in done.items() if count != 1} == set(), "these took effect twice"
    assert set(ran) == at_least_once, "some are lost, or of another load"


def assert_nothing_left(app: App, *, within_s: float = 20.0) -> None:
    """Wait until the pointers of empty zones are gone; then check that nothing is left but what is to stay."""
    eventually(lambda: not left_over(app), within_s=within_s, otherwise=lambda: f"left behind: {left_over(app)}")
    for name in app.shards:
        report = check_integrity(app.shards[name])
        assert report.healthy, report
        assert read_status(app.shards[name], "").dead_letters == 0


def left_over(app: App) -> list[tuple[object, ...]]:
    """Return the keys of queues, pointers and dead letters that are still there. Counters of zero may stay."""
    left = []
    for name in app.shards:
        for row in transact(app.shards[name].db, lambda tr: list(tr.snapshot.get_range(*ROOT_RANGE))):
            path = unpack(row.key, len(ROOT))
            queued = path[0] == DB and path[3] == ZONE
            counted = path[0] == DEPTH and any(row.value)
            if queued or counted or path[0] in (TOP, DEAD_LETTER_INDEX):
                left.append(tuple(path))
    return left


def lines_of(notes: Path) -> list[str]:
    """Return the lines that handlers have noted; not one that is being written: half of it may be there."""
    text = notes.read_text() if notes.exists() else ""
    return text[: text.rfind("\n") + 1].splitlines()


def runs_of(notes: Path) -> dict[str, list[tuple[int, int]]]:
    """Return when each item ran, from what its handler has noted: begin and end, nanoseconds."""
    open_runs: dict[tuple[str, str], int] = {}
    runs: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for line in lines_of(notes):
        what, item, time_ns, pid = line.split()
        if what == "begin":
            open_runs[item, pid] = int(time_ns)
        else:
            runs[item].append((open_runs.pop((item, pid)), int(time_ns)))
    return runs


def most_at_once(runs: dict[str, list[tuple[int, int]]]) -> int:
    """Return how many items ran at the same time, at most."""
    changes = sorted(change for spans in runs.values() for begin, end in spans for change in ((begin, 1), (end, -1)))
    return max(accumulate(step for _, step in changes))
