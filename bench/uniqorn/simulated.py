"""The protocol's own code in simulated time: every access takes a drawn time, parallel ones run at once.

Each shard is a server with data records and index records, and a number of slots: an access waits for a free one, in
order of arrival. What it reads or writes is that of the moment at which it ends. A client has threads, each with one
request at a time, and no pause between two. Cleanups are made beside, and nobody waits for them.

The two times are calibrated by two numbers of the paper's table 1, those of the monolithic store: an operation that is
one read ("read by AK") has a p99 of 12 ms, one that is a single write ("create with no AKs") of 16 ms. They are drawn
from log-normal distributions. All other numbers follow from the protocol.
"""

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from itertools import count
from math import exp
from random import Random
from typing import Any, NamedTuple

from bench.uniqorn.operations import NOTHING, Done, request_op
from bench.uniqorn.systems import Latencies
from bench.uniqorn.workload import FOUR, Kind, Request, Workload
from fairlead.records.accesses import Access, DeleteRecord, LookUp, Op, ReadIndex, ReadRecord, WriteRecord
from fairlead.records.errors import RecordError
from fairlead.records.storage_model.memory import MemoryStore
from fairlead.records.storage_model.performing import ModelStores
from fairlead.records.storage_model.record_store import Batch, RecordStore
from fairlead.records.stored import Versioned, unpack_data
from fairlead.zones.engines import StoreUnavailable

READ_P99_MS, WRITE_P99_MS = 12.0, 16.0
SPREAD = 0.5  # The standard deviation of the logarithm of a time.
NORMAL_99 = 2.326  # Standard deviations below which 99 % of a normal distribution lie.
THREADS = 8  # of a client; there is a client for each shard
SLOTS = 64  # of a server: enough that accesses seldom wait, as on servers that are not saturated
POOL = 4_000  # keys of each pool for each shard
READS = (ReadRecord, ReadIndex, LookUp)


class Setting(NamedTuple):
    """A data system and its load."""

    shards: int
    fields: int = 2
    kinds: tuple[Kind, ...] = FOUR
    threads: int = THREADS
    pool: int = POOL


class IndexedStore(MemoryStore):
    """A data store with a local index. `holders`: the key of the record that has an alternate key."""

    def __init__(self) -> None:
        super().__init__()
        self.holders: dict[bytes, str] = {}

    def batch(self, reads: Any, writes: Any) -> Batch:
        """See `BatchingStore`."""
        before = {each.key: self.rows.get(each.key) for each in writes}
        done = super().batch(reads, writes)
        for key, new, _ in writes if done.is_written else ():
            for index_key in _real_keys(key, before[key]):
                self.holders.pop(index_key, None)
            for index_key in _real_keys(key, new):
                self.holders[index_key] = key.decode()
        return done


def _real_keys(key: bytes, row: Versioned | None) -> tuple[bytes, ...]:
    record = None if row is None else unpack_data(key.decode(), row.value)
    return () if record is None or record.is_dummy else record.keys


class IndexStore(MemoryStore):
    """An index store that can be away: then it refuses everything."""

    is_away = False

    def get(self, key: bytes) -> Versioned | None:
        """See `RecordStore`."""
        self._check()
        return super().get(key)

    def batch(self, reads: Any, writes: Any) -> Batch:
        """See `BatchingStore`."""
        self._check()
        return super().batch(reads, writes)

    def _check(self) -> None:
        if self.is_away:
            raise StoreUnavailable("the index shard is away", remedy="Wait for it.")


class Placed(ModelStores):
    """Data and index stores, one of each on each server."""

    def __init__(self, data: Sequence[RecordStore], index: Sequence[RecordStore]) -> None:
        super().__init__(data, index)
        self._of_data = {id(store): number for number, store in enumerate(data)}
        self._of_index = {id(store): number for number, store in enumerate(index)}

    def server_of(self, access: Any) -> int:
        """Return the number of the server that an access goes to."""
        if isinstance(access, ReadRecord | WriteRecord | DeleteRecord):
            return self._of_data[id(self.data_store(access.key))]
        return self._of_index[id(self.index_store(access.index_key))]


class _Running:
    """An operation that is under way, and the answers of its present accesses."""

    __slots__ = ("answers", "ended", "missing", "operation")

    def __init__(self, operation: Op[Any], ended: Callable[[Any, Exception | None], None]) -> None:
        self.operation = operation
        self.ended = ended
        self.answers: list[Any] = []
        self.missing = 0


class Simulation:
    """One run.

    Args:
      request_op: carries a request out.
      outcome: called with the moment at which a request has ended, its kind, and how, which may be an error.
      data_store: what each server keeps data records in.

    Attributes:
      data, index: the stores of each server.
      found: the latencies.
    """

    def __init__(
        self,
        setting: Setting,
        random: Random,
        *,
        request_op: Callable[[Request], Op[Done]] = request_op,
        outcome: Callable[[float, Kind, Done | Exception], object] = lambda now_ms, kind, how: None,
        data_store: type[MemoryStore] = MemoryStore,
    ) -> None:
        self.data = [data_store() for _ in range(setting.shards)]
        self.index = [IndexStore() for _ in range(setting.shards)]
        self.now_ms = 0.0
        self.found = Latencies()
        self._setting = setting
        self._random = random
        self._request_op = request_op
        self._outcome = outcome
        self._placed = Placed(self.data, self.index)
        self._slots: list[list[float]] = [[0.0] * SLOTS for _ in range(setting.shards)]
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        pool = setting.pool * setting.shards
        self._workload = Workload(random, pool=pool, fields=setting.fields, kinds=setting.kinds)
        self._until_ms = 0.0

    def fill(self, share: float = 0.3) -> None:
        """Create records at no time: a share of the pool, about as many as the load keeps there."""
        for _ in range(int(share * self._setting.pool * self._setting.shards)):
            self._perform_now(self._request_op(self._workload.next(Kind.CREATE)))

    def run(self, until_ms: float, seconds_before: float = 1.0) -> Latencies:
        """Run until a moment; return the latencies of the requests that began after the first second."""
        self._until_ms = until_ms
        self._warm_ms = seconds_before * 1_000
        for _ in range(self._setting.threads * self._setting.shards):
            self._next_request()
        while self._events:
            self.now_ms, _, happen = heappop(self._events)
            happen()
        return self.found

    def at(self, at_ms: float, happen: Callable[[], None]) -> None:
        """Let something happen at a moment."""
        heappush(self._events, (at_ms, next(self._numbers), happen))

    def _next_request(self) -> None:
        began_ms = self.now_ms
        if began_ms >= self._until_ms:
            return
        request = self._workload.next()

        def ended(done: Done | None, error: Exception | None) -> None:
            if began_ms >= self._warm_ms and (done is None or done.found):
                self.found.add(request.kind, self.now_ms - began_ms, aborted=error is not None)
            self._outcome(self.now_ms, request.kind, done or error or NOTHING)
            if done is not None and done.cleanup is not None:
                self._start(_Running(done.cleanup, lambda result, error: None))
            self._next_request()

        self._start(_Running(self._request_op(request), ended))

    def _start(self, running: _Running) -> None:
        self._resume(running, lambda: next(running.operation))

    def _resume(self, running: _Running, step: Callable[[], Sequence[Access]]) -> None:
        """Let an operation go on, and send its next accesses; or end it."""
        try:
            accesses = step()
        except StopIteration as stop:
            running.ended(stop.value, None)
            return
        except RecordError as error:
            running.ended(None, error)
            return
        running.answers = [None] * len(accesses)
        running.missing = len(accesses)
        if not accesses:
            self._resume(running, lambda: running.operation.send([]))
        for number, access in enumerate(accesses):
            self._send(running, number, access)

    def _send(self, running: _Running, number: int, access: Access) -> None:
        slots = self._slots[self._placed.server_of(access)]
        ends_ms = max(self.now_ms, heappop(slots)) + self._draw_ms(access)
        heappush(slots, ends_ms)

        def end() -> None:
            running.answers[number] = _answer(self._placed, access)
            running.missing -= 1
            if running.missing:
                return
            failed = next((each for each in running.answers if isinstance(each, Exception)), None)
            if failed is not None:
                self._resume(running, lambda: running.operation.throw(failed))
            else:
                self._resume(running, lambda: running.operation.send(running.answers))

        self.at(ends_ms, end)

    def _draw_ms(self, access: Access) -> float:
        p99_ms = READ_P99_MS if isinstance(access, READS) else WRITE_P99_MS
        return p99_ms / exp(NORMAL_99 * SPREAD) * self._random.lognormvariate(0, SPREAD)

    def _perform_now(self, operation: Op[Any]) -> None:
        running = _Running(operation, lambda result, error: None)
        try:
            accesses = next(running.operation)
            while True:
                accesses = running.operation.send([_answer(self._placed, each) for each in accesses])
        except (StopIteration, RecordError):
            return


def _answer(stores: ModelStores, access: Access) -> Any:
    try:
        return stores.answer(access)
    except RecordError as error:
        return error
