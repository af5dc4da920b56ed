"""Figure 6, in simulated time: index shards go away one after the other, and come back one after the other.

A read or a delete by an alternate key whose index shard is away asks all data shards for it: each keeps a local index
of its records' alternate keys, as section 3.2 of the paper proposes. It then reads the record.

A request is answered unless it fails because an index shard is away: a refusal for another reason is an answer.
Updates of records that are not there are not counted.
"""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from random import Random
from typing import Any, cast

from bench.report import say
from bench.uniqorn.operations import PROTOCOL, Done, delete_op, request_op, wanted
from bench.uniqorn.simulated import IndexedStore, Setting, Simulation
from bench.uniqorn.workload import FOUR, Kind, Request
from fairlead.records.accesses import Op, ReadRecord, one, together
from fairlead.records.errors import IndexUnavailable
from fairlead.records.stored import DataRecord

SHARDS = 6
PHASE_MS, QUICK_PHASE_MS = 5_000.0, 200.0  # The paper's is five minutes. The ratios do not depend on it.
THREADS = 4


def figure6(*, quick: bool) -> list[dict[str, Any]]:
    """Return a row for each phase and kind of requests: the share that was answered."""
    rows = []
    for scatters in (True, False):
        say("with local indexes on the data shards" if scatters else "without them")
        rows += _run(scatters=scatters, phase_ms=QUICK_PHASE_MS if quick else PHASE_MS)
    return rows


def _run(*, scatters: bool, phase_ms: float) -> list[dict[str, Any]]:
    away = [*range(SHARDS + 1), *reversed(range(SHARDS))]
    answered: Counter[tuple[int, Kind]] = Counter()
    failed: Counter[tuple[int, Kind]] = Counter()

    def outcome(now_ms: float, kind: Kind, how: Done | Exception) -> None:
        phase = min(int(now_ms / phase_ms), len(away) - 1)
        failed[phase, kind] += isinstance(how, IndexUnavailable)
        is_nothing = isinstance(how, Done) and not how.found and kind is Kind.UPDATE
        answered[phase, kind] += not is_nothing and not isinstance(how, IndexUnavailable)

    fall_back = FallBack()
    simulation = Simulation(
        Setting(SHARDS, threads=THREADS),
        Random(0),
        request_op=fall_back.request_op if scatters else request_op,
        outcome=outcome,
        data_store=IndexedStore,
    )
    fall_back.data = cast(list[IndexedStore], simulation.data)
    simulation.fill()
    for phase, number in enumerate(away):
        simulation.at(phase * phase_ms, partial(_take_away, simulation, number))
    simulation.run(len(away) * phase_ms)
    return [
        {
            "phase": phase,
            "away": number,
            "scatters": scatters,
            "operation": kind.value,
            "answered": round(answered[phase, kind] / (answered[phase, kind] + failed[phase, kind]), 4),
            "requests": answered[phase, kind] + failed[phase, kind],
        }
        for phase, number in enumerate(away)
        for kind in FOUR
    ]


def _take_away(simulation: Simulation, number: int) -> None:
    for which, store in enumerate(simulation.index):
        store.is_away = which < number


class FallBack:
    """Requests that ask all data shards where an index shard is away. `data`: the data shards."""

    def __init__(self) -> None:
        self.data: Sequence[IndexedStore] = []

    def request_op(self, request: Request) -> Op[Done]:
        """See `operations.request_op`."""
        try:
            return (yield from request_op(request))
        except IndexUnavailable:
            if request.kind not in (Kind.READ, Kind.DELETE):
                raise
        found = yield from self._find_op(wanted(request))
        if found is None or request.kind is Kind.READ:
            return Done(found is not None)
        return (yield from delete_op(*found))

    def _find_op(self, index_key: bytes) -> Op[tuple[str, DataRecord] | None]:
        """Ask all data shards in parallel; each answers after the time of a read."""
        held = [key for store in self.data if (key := store.holders.get(index_key)) is not None]
        yield from together([one(ReadRecord(f"local index of shard {number}")) for number in range(len(self.data))])
        for key in held:
            record = yield from PROTOCOL.get_op(key)
            if record is not None and record.has(index_key):
                return key, record
        return None
