"""An open-loop load sends its enqueues on time, and the waits of many processes merge."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from random import Random

import pytest

from bench.load.generator import Generator
from bench.load.histograms import histogram, merged, of_buckets, waits
from bench.load.load_spec import PARETO, Load
from bench.load.outcome import Leases, outcome
from bench.load.schedule import Sending, draw_of, schedule
from bench.load.wait_recorder import WaitRecorder, recorded_waits, results_tenant
from fairlead import App, BadArgument, Config

SECOND = 1_000_000


class SteppedClock:
    """Time that passes only by sleeping."""

    def __init__(self) -> None:
        self.us = 0

    def now_us(self) -> int:
        return self.us

    def sleep_us(self, duration_us: int) -> None:
        self.us += duration_us


# --- Tenants ---


def test_a_fifth_of_the_tenants_enqueues_most_of_a_skewed_load_and_a_fifth_of_a_uniform_load() -> None:
    def share_of_the_busiest_fifth(load: Load) -> float:
        random, draw = Random(1), draw_of(load)
        drawn = Counter(draw(random) for _ in range(50_000))
        return sum(count for _, count in drawn.most_common(load.tenants // 5)) / 50_000

    assert 0.6 < share_of_the_busiest_fifth(Load(tenants=2_000, skew=PARETO)) < 0.95
    assert 0.2 < share_of_the_busiest_fifth(Load(tenants=2_000)) < 0.3


def test_every_generator_of_a_skewed_load_has_the_same_busy_tenants() -> None:
    load = Load(tenants=500, skew=PARETO, enqueues_per_s=1_000)
    busiest = [Counter(each.tenant for each in schedule(load, share=share, of=2)).most_common(1) for share in (0, 1)]
    assert busiest[0][0][0] == busiest[1][0][0]


# --- Times ---


def test_generators_together_offer_the_rate_of_the_load_in_order_of_time() -> None:
    load = Load(enqueues_per_s=400, seconds=20, warm_s=5)
    streams = [list(schedule(load, share=share, of=4)) for share in range(4)]
    assert sum(map(len, streams)) == pytest.approx(400 * 25, rel=0.05)
    for stream in streams:
        assert all(one.due_us <= other.due_us for one, other in pairwise(stream))
        assert all(each.warm == (each.due_us < 5 * SECOND) for each in stream)


def test_a_load_has_the_same_schedule_again_and_another_seed_has_a_different_one() -> None:
    assert list(schedule(Load())) == list(schedule(Load()))
    assert list(schedule(Load())) != list(schedule(Load(seed=1)))


def test_a_generator_sends_each_at_its_time_while_the_store_keeps_up() -> None:
    load, clock, sent = Load(enqueues_per_s=10, warm_s=0, seconds=10), SteppedClock(), []
    generator = Generator(load, share=0, of=1, send=lambda sending, due_us: sent.append(clock.us), clock=clock)
    generator.run(3 * SECOND)
    assert sent == [3 * SECOND + each.due_us for each in schedule(load)]
    assert generator.progress().late_us_max == 0
    assert waits(generator.enqueues()).max_ms == 0


def test_a_store_that_hangs_delays_due_enqueues_and_drops_none() -> None:
    """Otherwise the items that were not sent while the store hung would be missing among the slow ones."""
    load, clock = Load(enqueues_per_s=10, warm_s=0, seconds=20), SteppedClock()
    hung_us = 5 * SECOND

    def send(sending: Sending, due_us: int) -> None:
        clock.us += hung_us if sending == first else 0

    first, *rest = schedule(load)
    generator = Generator(load, share=0, of=1, send=send, clock=clock)
    generator.run(0)
    delayed = [each for each in rest if each.due_us < first.due_us + hung_us]
    taken = generator.enqueues()
    assert len(delayed) > 30
    assert taken.total_count == 1 + len(rest)
    assert taken.get_count_at_value(0) == pytest.approx(len(rest) - len(delayed), abs=1)
    assert generator.progress().late_us_max == pytest.approx(first.due_us + hung_us - delayed[0].due_us)
    assert generator.progress().ended


def test_enqueues_during_the_warm_up_are_not_measured() -> None:
    load, clock = Load(enqueues_per_s=100, warm_s=5, seconds=5), SteppedClock()
    generator = Generator(load, share=0, of=1, send=lambda sending, due_us: None, clock=clock)
    generator.run(0)
    progress = generator.progress()
    assert generator.enqueues().total_count == progress.measured == sum(not each.warm for each in schedule(load))
    assert progress.measured < progress.acknowledged == progress.taken


@pytest.mark.parametrize(
    "wrong", [{"tenants": 0}, {"enqueues_per_s": 0}, {"items": 101}, {"skew": "zipf"}, {"work_ms": -1}, {"seconds": 0}]
)
def test_an_impossible_load_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(BadArgument):
        Load(**wrong)  # type: ignore[arg-type]


# --- Waits ---


def test_histograms_of_two_processes_merge_into_that_of_all_waits() -> None:
    low, high = [Random(1).randrange(1, 10_000) for _ in range(500)], [8_200_000] * 3
    both = merged([histogram(low).encode(), histogram(high).encode()])
    assert waits(both) == waits(histogram([*low, *high]))
    assert waits(both).count == 503
    assert waits(both).max_ms == pytest.approx(8_200, rel=0.001)


def test_an_empty_histogram_and_negative_waits_have_figures() -> None:
    assert waits(histogram()).count == 0
    assert waits(histogram([-5])).max_ms == 0
    assert waits(of_buckets({105_000: 3, 7: 0})).count == 3


def test_the_waits_that_processes_of_a_fleet_record_are_stored_by_run() -> None:
    app = App()
    app.configure(Config(shards={"main": "memory:"}))
    one, other = WaitRecorder(lambda: results_tenant(app)), WaitRecorder(lambda: results_tenant(app))
    for tally, run, waited_us in [(one, 1, 10), (one, 2, 20), (other, 1, 30), (other, 0, 40)]:
        tally.note(run, waited_us)
    for _ in range(2):  # A wait that is stored twice counts once.
        one.flush()
        other.flush()
    assert [recorded_waits(app, run).total_count for run in (0, 1, 2)] == [0, 2, 1]
    app.close()


def test_an_outcome_is_the_difference_of_the_counts_at_two_times() -> None:
    before = {"completed": 10, "missed_at_read": 1, "picked_up_within_us_500": 4}
    after = {"completed": 40, "missed_at_read": 4, "missed_at_commit": 1, "conflicts": 2, "picked_up_within_us_500": 9,
             "picked_up_within_us_900": 1}  # fmt: skip
    found = outcome(seconds=10, before=before, after=after, items=histogram([1_000]))
    assert found.items_per_s == 3
    assert found.leases == Leases(leased=6, missed_at_read=3, missed_at_commit=1, conflicts=2)
    assert (found.leases.failed_percent, found.leases.at_commit_percent) == (40, 25)
    assert found.pointer.max_ms == 0.9
