"""Figures are computed correctly from measurements."""

from bench.handlers import NAP_S, Start
from bench.quiet_tenants import HEAVY, QUIET, SLOTS, shares
from bench.report import latency, percentile, rate

NAP_NS = int(NAP_S * 1e9)
SECOND_NS = 10**9


def test_a_percentile_is_one_of_the_values() -> None:
    values = list(range(1, 101))
    assert percentile(values, 50) == 50
    assert percentile(values, 99) == 99
    assert percentile([3.0, 1.0, 2.0], 99) == 3.0
    assert percentile([7.0], 50) == 7.0


def test_a_ratio_is_the_median_of_ratios_to_the_floor_of_the_same_repetition() -> None:
    """A busy machine that slows down a whole repetition does not change the ratio."""
    figure = rate([(500, 1000), (50, 100), (600, 1000)])
    assert figure.of_floor == 0.5
    assert (figure.of_floor_min, figure.of_floor_max) == (0.5, 0.6)
    assert (figure.per_s, figure.floor_per_s) == (500, 1000)


def test_a_latency_figure_is_the_median_over_runs_and_the_worst_of_all() -> None:
    figure = latency([[1.0, 2.0, 9.0], [1.0, 3.0, 4.0], [2.0, 5.0, 6.0]])
    assert (figure.p50_ms, figure.p99_ms, figure.max_ms) == (3.0, 6.0, 9.0)
    assert (figure.p99_min_ms, figure.p99_max_ms, figure.items) == (4.0, 9.0, 9)


def test_a_heavy_tenant_that_is_always_in_every_slot_has_a_share_of_one() -> None:
    heavy = [Start(HEAVY, 0, at, at + NAP_NS) for at in range(0, SECOND_NS, NAP_NS) for _ in range(SLOTS)]
    quiet = [Start(QUIET, 0, 3_000_000, 3_000_000)]
    figure = shares([*heavy, *quiet], quiet, from_ns=0, until_ns=SECOND_NS)
    assert (figure.heavy_share, figure.heavy_napped) == (1.0, 1.0)
    assert figure.heavy_per_s == SLOTS / NAP_S
    assert figure.quiet.max_ms == 3.0


def test_slot_time_that_quiet_tenants_use_does_not_count_as_free_for_the_heavy_tenant() -> None:
    half_ns = SLOTS * SECOND_NS // 2
    quiet = [Start(QUIET, 0, 0, half_ns // SLOTS)] * SLOTS
    heavy = [Start(HEAVY, 0, SECOND_NS // 2, SECOND_NS)] * (SLOTS // 2)
    assert shares([*quiet, *heavy], quiet, from_ns=0, until_ns=SECOND_NS).heavy_share == 0.5


def test_only_slot_time_in_the_window_counts() -> None:
    heavy = [Start(HEAVY, 0, -SECOND_NS, SECOND_NS // 4), Start(HEAVY, 0, SECOND_NS // 2, 5 * SECOND_NS)]
    quiet = [Start(QUIET, 0, 1, 1)]
    figure = shares([*heavy, *quiet], quiet, from_ns=0, until_ns=SECOND_NS)
    assert figure.heavy_share == round(0.75 / SLOTS, 3)
    assert figure.heavy_per_s == 1.0
