"""The workload is the paper's, and every system carries it out alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest

from bench.uniqorn.garbage import Planting
from bench.uniqorn.operations import index_keys
from bench.uniqorn.systems import (
    Aborted,
    Latencies,
    OverStores,
    System,
    carry_out_timed,
    figures,
    fill,
    run_for,
    workloads_of,
)
from bench.uniqorn.workload import FOUR, VALUE_BYTES, Kind, Workload
from fairlead.records.storage_model.memory import MemoryStore
from tests.postgresql_server import missing, started

POOL, REQUESTS = 12, 400


@pytest.fixture
def over_memory() -> Iterator[OverStores]:
    with ThreadPoolExecutor(8) as threads:
        yield OverStores([MemoryStore(), MemoryStore()], [MemoryStore(), MemoryStore()], threads)


def outcomes(system: System, requests: int = REQUESTS) -> list[object]:
    """Return how requests end, one after the other: aborted, or whether a record was found."""
    workload = Workload(Random(3), pool=POOL, kinds=tuple(Kind))
    found: list[object] = []
    for _ in range(requests):
        try:
            carried = system.carry_out(workload.next())
        except Aborted:
            found.append("aborted")
            continue
        if carried.cleanup is not None:
            carried.cleanup()
        found.append(carried.found)
    return found


def test_values_have_2_to_3_kilobytes_and_keys_come_from_pools() -> None:
    workload = Workload(Random(1), pool=POOL, fields=4, kinds=tuple(Kind))
    requests = [workload.next() for _ in range(REQUESTS)]
    assert all(VALUE_BYTES[0] <= len(request.value) <= VALUE_BYTES[1] for request in requests)
    assert {request.kind for request in requests} == set(Kind)
    assert len({request.key for request in requests if request.kind is not Kind.CREATE_BARE}) == POOL
    assert {len(request.names) for request in requests} == {0, 4}
    assert len({key for request in requests for key in index_keys(request)}) == 4 * POOL
    assert len({request.generation for request in requests}) == REQUESTS


def test_over_stores_every_kind_of_outcome_occurs(over_memory: OverStores) -> None:
    assert set(Counter(outcomes(over_memory))) == {"aborted", True, False}


def test_one_table_and_the_protocol_over_stores_end_every_request_alike(over_memory: OverStores) -> None:
    if reason := missing():
        pytest.skip(reason)
    from bench.uniqorn.postgresql import OneTable

    with started() as server:
        one_table = OneTable(server.url, fields=2)
        try:
            assert outcomes(one_table) == outcomes(over_memory)
        finally:
            one_table.close()


def test_threads_count_all_requests_and_which_of_them_were_aborted(over_memory: OverStores) -> None:
    fill(over_memory, Workload(Random(1), pool=POOL), POOL)
    found = run_for(over_memory, workloads_of(3, 1, POOL, FOUR), 0.2)
    row = figures([found], Kind.CREATE)
    assert row["requests"] == len(found.ms[Kind.CREATE]) > row["aborted"] > 0
    assert 0 < row["p99_min_ms"] <= row["p99_ms"] <= row["p99_max_ms"]


def test_a_request_that_finds_nothing_is_not_counted(over_memory: OverStores) -> None:
    found = Latencies()
    for kind in (Kind.READ, Kind.UPDATE, Kind.DELETE):
        carry_out_timed(over_memory, Workload(Random(1), pool=POOL).next(kind), found)
    assert found.ms == {}


@pytest.mark.parametrize("ratio", [0.0, 1.0, 3.0])
def test_stores_are_brought_to_a_ratio_of_garbage_again_and_again(ratio: float) -> None:
    data, index = [MemoryStore(), MemoryStore()], [MemoryStore()]
    planting = Planting(data, index, Random(1), pool=400, records=96)
    with ThreadPoolExecutor(8) as threads:
        system = OverStores(data, index, threads, cleans=False)
        for _ in range(2):
            planting.plant(ratio)
            assert planting.ratio() == pytest.approx(ratio)
            run_for(system, workloads_of(2, 1, 400, FOUR), 0.1)
        for _ in range(100):  # A busy machine may carry out nothing in a tenth of a second.
            if planting.ratio() == ratio:
                run_for(system, workloads_of(2, 1, 400, FOUR), 0.1)
    assert planting.ratio() != ratio
