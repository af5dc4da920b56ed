"""Simulated time: an access takes a drawn time, parallel ones run at once, a server has slots."""

from __future__ import annotations

from random import Random

import pytest

from bench.report import percentile
from bench.uniqorn import outage, scaling, simulated
from bench.uniqorn.outage import FallBack
from bench.uniqorn.simulated import READ_P99_MS, WRITE_P99_MS, IndexedStore, Setting, Simulation
from bench.uniqorn.workload import FOUR, Kind
from fairlead.records.stored import unpack_data

SECONDS = 8_000.0


def run(setting: Setting, until_ms: float = SECONDS, *, filled: float = 0.3) -> Simulation:
    simulation = Simulation(setting, Random(1))
    simulation.fill(filled)
    simulation.run(until_ms)
    return simulation


@pytest.fixture(scope="module")
def one_shard() -> Simulation:
    return run(Setting(1, kinds=tuple(Kind), threads=4))


def test_a_request_of_one_write_takes_what_the_paper_says_of_a_write(one_shard: Simulation) -> None:
    assert percentile(one_shard.found.ms[Kind.CREATE_BARE], 99) == pytest.approx(WRITE_P99_MS, rel=0.15)


def test_a_read_by_alternate_key_is_two_reads_in_a_row(one_shard: Simulation) -> None:
    found = percentile(one_shard.found.ms[Kind.READ], 99)
    assert READ_P99_MS < found < 2 * READ_P99_MS


def test_parallel_accesses_take_the_longest_of_theirs_not_their_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Simulation, "_draw_ms", lambda simulation, access: 10.0)
    found = run(Setting(1, fields=4, threads=1), 2_000.0, filled=0.0).found
    assert min(found.done_ms[Kind.CREATE]) == pytest.approx(30.0)  # The dummy, four index records at once, the record.


def test_accesses_wait_for_a_slot_of_their_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Simulation, "_draw_ms", lambda simulation, access: 10.0)
    monkeypatch.setattr(simulated, "SLOTS", 1)
    found = run(Setting(1, fields=4, threads=1), 2_000.0, filled=0.0).found
    assert min(found.done_ms[Kind.CREATE]) >= 60.0


def test_a_run_is_the_same_for_the_same_seed() -> None:
    runs = [run(Setting(2), 1_500.0).found.ms for _ in range(2)]
    assert runs[0] == runs[1]


def test_records_are_unique_and_local_indexes_are_right_in_the_end() -> None:
    simulation = Simulation(Setting(3, pool=50), Random(1), data_store=IndexedStore)
    simulation.fill()
    simulation.run(3_000.0)
    owners: dict[bytes, str] = {}
    for store in simulation.data:
        assert isinstance(store, IndexedStore)
        held: dict[bytes, str] = {}
        for key, row in store.rows.items():
            record = unpack_data(key.decode(), row.value)
            held |= {} if record.is_dummy else dict.fromkeys(record.keys, key.decode())
        assert held == store.holders
        assert not owners.keys() & held.keys()
        owners |= held
    assert owners


def test_a_fall_back_finds_what_the_index_would_have_found() -> None:
    fall_back = FallBack()
    setting = Setting(2, kinds=(Kind.READ,), threads=1, pool=20)
    simulation = Simulation(
        setting,
        Random(1),
        request_op=fall_back.request_op,
        outcome=lambda now_ms, kind, how: ended.append(how),
        data_store=IndexedStore,
    )
    ended: list[object] = []
    fall_back.data = [store for store in simulation.data if isinstance(store, IndexedStore)]
    simulation.fill()
    for store in simulation.index:
        store.is_away = True
    simulation.run(2_000.0)
    assert {getattr(how, "found", None) for how in ended} == {True, False}


# --- The figures ---


def test_figure_4_has_every_number_of_shards_and_every_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling, "SHARDS", (1, 2))
    rows = scaling.figure4(quick=True)
    assert [(row["shards"], row["operation"]) for row in rows] == [
        (shards, kind.value) for shards in (1, 2) for kind in Kind
    ]
    assert [row["of_first"] for row in rows[: len(Kind)]] == [1.0] * len(Kind)


def test_figure_5_begins_without_alternate_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling, "FIELDS", (0, 2))
    monkeypatch.setattr(scaling, "FIELDS_SHARDS", 2)
    rows = scaling.figure5(quick=True)
    create, update = Kind.CREATE.value, Kind.UPDATE.value
    loads = [(create, None), (update, None), (create, "few keys taken")]
    assert [(row["fields"], row["operation"], row.get("load")) for row in rows] == [
        (fields, *load) for fields in (0, 2) for load in loads
    ]
    assert rows[0]["p99_ms"] < rows[3]["p99_ms"]
    assert "of_first" not in rows[0]
    assert rows[5]["aborted"] / rows[5]["requests"] < rows[3]["aborted"] / rows[3]["requests"]


def test_figure_6_fails_nothing_with_all_shards_there_and_no_lookup_with_local_indexes() -> None:
    rows = outage.figure6(quick=True)
    there = [row for row in rows if row["away"] == 0 and row["phase"] == 0]
    assert {row["answered"] for row in there} == {1.0}
    for row in rows:
        if row["operation"] in (Kind.READ.value, Kind.DELETE.value):
            assert (row["answered"] == 1.0) == (row["scatters"] or row["away"] == 0)
        if row["away"] == outage.SHARDS and row["operation"] == Kind.CREATE.value:
            assert row["answered"] < 0.4  # Only where the record exists already.
    assert {row["operation"] for row in rows} == {kind.value for kind in FOUR}
