"""What ends a transaction: the window of five seconds, a timeout, a refused write, a commit, a cancellation."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fairlead.zones.engines import Database
from fairlead.zones.engines.api.errors import error_code
from tests.clocks import ManualClock
from tests.contract.conftest import Space, code_of, read_version

Pass = Callable[[int], None]
WINDOW_US = 5_000_000
LONG_US = 7_000_000  # A cluster drops old versions a little after the end of the window.


def test_a_read_after_five_seconds_fails_and_so_does_the_commit(db: Database, space: Space, pass_us: Pass) -> None:
    tr = db.create_transaction()
    assert tr.get(space.key("a")).value is None
    pass_us(LONG_US)
    for future in (tr.get(space.key("b")), tr.snapshot.get(space.key("b"))):
        with pytest.raises(db.errors) as caught:
            _ = future.value
        assert error_code(caught.value) == 1007
    assert code_of(tr.commit()) == 1007


def test_a_range_that_takes_more_than_five_seconds_to_read_fails(db: Database, space: Space, pass_us: Pass) -> None:
    for part in range(3):
        space.put(**{f"{part}{number:03}": bytes(1_000) for number in range(100)})
    rows = iter(db.create_transaction().get_range(space.prefix, space.end()))
    next(rows)
    pass_us(LONG_US)
    with pytest.raises(db.errors) as caught:
        list(rows)
    assert error_code(caught.value) == 1007


def test_a_commit_fails_if_its_reads_are_too_old(db: Database, space: Space, pass_us: Pass) -> None:
    tr = db.create_transaction()
    assert tr.get(space.key("a")).value is None
    tr.set(space.key("b"), b"1")
    pass_us(LONG_US)
    assert code_of(tr.commit()) == 1007
    assert space.all() == {}


def test_a_transaction_that_only_reads_or_only_writes_commits_at_any_age(
    db: Database, space: Space, pass_us: Pass
) -> None:
    reader, writer = db.create_transaction(), db.create_transaction()
    assert reader.get(space.key("a")).value is None
    writer.set(space.key("b"), b"1")
    pass_us(LONG_US)
    assert code_of(reader.commit()) == 0
    assert code_of(writer.commit()) == 0
    assert space.all() == {"b": b"1"}


def test_the_window_opens_with_the_first_read_not_with_the_transaction(
    db: Database, space: Space, pass_us: Pass
) -> None:
    tr = db.create_transaction()
    pass_us(LONG_US)
    assert tr.get(space.key("a")).value is None
    tr.set(space.key("a"), b"1")
    assert code_of(tr.commit()) == 0


@pytest.mark.parametrize("engine", ["memory", "embedded"], indirect=True)
def test_an_idle_hour_makes_no_transaction_too_old(db: Database, space: Space, clock: ManualClock) -> None:
    """The first transaction after the hour reads at a version that is an hour old, and conflicts like any other."""
    space.put(a=b"1")
    for expected in (0, 1020):
        clock.advance_us(3_600_000_000)
        tr = db.create_transaction()
        assert tr.get(space.key("a")).present()
        tr.set(space.key("b"), b"1")
        space.put(**({"a": b"2"} if expected else {"c": b"2"}))
        assert code_of(tr.commit()) == expected


@pytest.mark.parametrize("engine", ["memory", "embedded"], indirect=True)
def test_a_clock_that_steps_back_reopens_no_window(db: Database, space: Space, clock: ManualClock) -> None:
    tr = db.create_transaction()
    assert tr.get(space.key("a")).value is None
    clock.advance_us(LONG_US)
    with pytest.raises(db.errors):
        _ = tr.get(space.key("a")).value
    clock.advance_us(-LONG_US)
    with pytest.raises(db.errors) as caught:
        _ = tr.get(space.key("a")).value
    assert error_code(caught.value) == 1007


@pytest.mark.parametrize("engine", ["memory", "embedded"], indirect=True)
def test_a_clock_that_steps_back_lowers_no_version_and_hides_no_conflict(
    db: Database, space: Space, clock: ManualClock
) -> None:
    space.put(a=b"1")
    before = read_version(db)
    clock.advance_us(-3_600_000_000)
    tr = db.create_transaction()
    assert tr.get(space.key("a")).value == b"1"
    tr.set(space.key("b"), b"1")
    space.put(a=b"2")
    assert code_of(tr.commit()) == 1020
    assert read_version(db) > before


def test_a_read_version_can_be_shared(db: Database, space: Space) -> None:
    space.put(a=b"1")
    version = read_version(db)
    tr = db.create_transaction()
    tr.set_read_version(version)
    assert tr.get(space.key("a")).value == b"1"
    assert tr.get_read_version().wait() == version
    tr.set(space.key("b"), b"2")
    assert code_of(tr.commit()) == 0


@pytest.mark.parametrize("engine", ["memory", pytest.param("fdb", marks=pytest.mark.foundationdb)], indirect=True)
def test_an_older_version_within_the_window_can_still_be_read(db: Database, space: Space) -> None:
    space.put(a=b"1")
    version = read_version(db)
    space.put(a=b"2")
    tr = db.create_transaction()
    tr.set_read_version(version)
    assert tr.get(space.key("a")).value == b"1"
    tr.set(space.key("b"), b"2")
    assert code_of(tr.commit()) == 1020


@pytest.mark.parametrize("engine", ["embedded"], indirect=True)
def test_the_embedded_engine_reads_the_present_version_only(db: Database, space: Space) -> None:
    space.put(a=b"1")
    version = read_version(db)
    space.put(a=b"2")
    tr = db.create_transaction()
    tr.set_read_version(version)
    with pytest.raises(db.errors) as caught:
        _ = tr.get(space.key("a")).value
    assert error_code(caught.value) == 1007


def test_a_future_version_cannot_be_read(db: Database, space: Space) -> None:
    version = read_version(db)
    tr = db.create_transaction()
    tr.set_read_version(version + 10_000_000_000)
    with pytest.raises(db.errors) as caught:
        _ = tr.get(space.key("a")).value
    assert error_code(caught.value) == 1009


@pytest.mark.parametrize(("versions", "code"), [([0], 2011), ([-1], 2011), ([1, 1], 2010)])
def test_a_read_version_is_positive_and_set_once(db: Database, space: Space, versions: list[int], code: int) -> None:
    tr = db.create_transaction()
    for version in versions:
        tr.set_read_version(version)
    assert code_of(tr.commit()) == code


def test_every_operation_fails_after_a_timeout(db: Database, space: Space, pass_us: Pass) -> None:
    tr = db.create_transaction()
    tr.options.set_timeout(100)
    watch = tr.watch(space.key("a"))
    tr.set(space.key("a"), b"1")
    pass_us(300_000)
    assert code_of(tr.get_read_version()) == 1031
    assert code_of(tr.commit()) == 1031
    assert code_of(watch) in (0, 1031)
    assert code_of(tr.on_error(db.errors[0](1020))) == 1031
    tr.reset()
    tr.set(space.key("a"), b"2")
    pass_us(300_000)
    assert code_of(tr.commit()) == 0


def test_a_timeout_covers_all_retries(db: Database, space: Space, pass_us: Pass) -> None:
    tr = db.create_transaction()
    tr.options.set_timeout(300)
    pass_us(200_000)
    assert code_of(tr.on_error(db.errors[0](1020))) == 0
    pass_us(200_000)
    assert code_of(tr.commit()) == 1031


def test_a_refused_write_fails_every_later_step_until_reset(db: Database, space: Space) -> None:
    tr = db.create_transaction()
    tr.clear_range(space.key("b"), space.key("a"))
    tr.set(bytes(20_000), b"the first refusal counts")
    with pytest.raises(db.errors) as caught:
        _ = tr.get(space.key("a")).value
    assert error_code(caught.value) == 2005
    for future in (tr.get_read_version(), tr.get_approximate_size(), tr.watch(space.key("a")), tr.commit()):
        assert code_of(future) == 2005
    tr.reset()
    tr.set(space.key("a"), b"1")
    assert code_of(tr.commit()) == 0


def test_a_committed_transaction_refuses_further_operations(db: Database, space: Space) -> None:
    tr = db.create_transaction()
    tr.set(space.key("a"), b"1")
    assert code_of(tr.commit()) == 0
    tr.set(space.key("b"), b"1")
    assert code_of(tr.commit()) == 2017
    with pytest.raises(db.errors) as caught:
        _ = tr.get(space.key("a")).value
    assert error_code(caught.value) == 2017
    assert space.all() == {"a": b"1"}


def test_a_cancelled_transaction_can_be_reset(db: Database, space: Space) -> None:
    tr = db.create_transaction()
    tr.set(space.key("a"), b"1")
    tr.cancel()
    tr.set(space.key("b"), b"1")
    assert code_of(tr.commit()) == 1025
    tr.reset()
    tr.set(space.key("c"), b"1")
    assert code_of(tr.commit()) == 0
    assert space.all() == {"c": b"1"}


@pytest.mark.parametrize("code", [1007, 1009, 1020, 1021, 1037, 1038, 1213])
def test_a_retryable_error_empties_the_transaction(db: Database, space: Space, code: int) -> None:
    tr = db.create_transaction()
    tr.set(space.key("a"), b"1")
    assert code_of(tr.on_error(db.errors[0](code))) == 0
    tr.set(space.key("b"), b"1")
    assert code_of(tr.commit()) == 0
    assert space.all() == {"b": b"1"}


@pytest.mark.parametrize("code", [1025, 1031, 2004, 2101])
def test_any_other_error_is_raised_again_and_cancels(db: Database, space: Space, code: int) -> None:
    tr = db.create_transaction()
    tr.set(space.key("a"), b"1")
    assert code_of(tr.on_error(db.errors[0](code))) == code
    assert code_of(tr.commit()) == 1025


def test_a_retry_limit_counts_errors_and_a_reset_clears_it(db: Database, space: Space) -> None:
    tr = db.create_transaction()
    tr.options.set_retry_limit(2)
    assert [code_of(tr.on_error(db.errors[0](1020))) for _ in range(3)] == [0, 0, 1020]
    tr.reset()
    assert [code_of(tr.on_error(db.errors[0](1020))) for _ in range(4)] == [0, 0, 0, 0]


@pytest.mark.parametrize("engine", ["memory", "embedded"], indirect=True)
def test_the_delay_between_attempts_doubles_up_to_its_limit(db: Database, clock: ManualClock) -> None:
    tr = db.create_transaction()
    tr.options.set_max_retry_delay(40)
    waited_us = []
    for _ in range(40):
        before = clock.now_us()
        tr.on_error(db.errors[0](1020)).wait()
        waited_us.append(clock.now_us() - before)
    assert waited_us[0] <= 10_000
    assert waited_us[1] <= 20_000
    assert 20_000 < max(waited_us) <= 40_000


def test_a_transaction_larger_than_its_limit_is_refused(db: Database, space: Space) -> None:
    tr = db.create_transaction()
    tr.options.set_size_limit(1_000)
    tr.set(space.key("a"), bytes(2_000))
    assert tr.get_approximate_size().wait() > 2_000
    assert code_of(tr.commit()) == 2101
    tr = db.create_transaction()
    for number in range(101):
        tr.set(space.key(f"{number}"), bytes(100_000))
    assert code_of(tr.commit()) == 2101
    assert space.all() == {}


@pytest.mark.parametrize("engine", ["memory", "embedded"], indirect=True)
def test_overwritten_values_do_not_count_towards_the_size_limit(db: Database, space: Space) -> None:
    tr = db.create_transaction()
    tr.options.set_size_limit(3_000)
    for _ in range(5):
        tr.set(space.key("a"), bytes(1_000))
        tr.add(space.key("b"), bytes(600))
    tr.set(space.key("b"), b"1")
    assert code_of(tr.commit()) == 0


@pytest.mark.parametrize(
    "option",
    [
        lambda options: options.set_size_limit(31),
        lambda options: options.set_size_limit(10_000_001),
        lambda options: options.set_timeout(-1),
        lambda options: options.set_retry_limit(-2),
    ],
)
def test_an_option_out_of_bounds_is_refused(db: Database, option: Callable[[object], None]) -> None:
    tr = db.create_transaction()
    option(tr.options)
    assert code_of(tr.commit()) == 2006


def test_options_about_clusters_are_accepted_everywhere(db: Database, space: Space) -> None:
    tr = db.create_transaction()
    tr.options.set_causal_read_risky()
    tr.options.set_priority_batch()
    tr.options.set_debug_transaction_identifier("a transaction")
    tr.set(space.key("a"), b"1")
    assert code_of(tr.commit()) == 0
    with pytest.raises(AttributeError):
        tr.options.set_no_such_option()


def test_reading_only_the_store_must_be_chosen_before_the_first_write(db: Database, space: Space) -> None:
    tr = db.create_transaction()
    tr.options.set_read_your_writes_disable()
    tr.set(space.key("a"), b"1")
    assert tr.get(space.key("a")).value is None
    assert list(tr.get_range(space.prefix, space.end())) == []
    assert code_of(tr.commit()) == 0
    late = db.create_transaction()
    late.set(space.key("a"), b"1")
    late.options.set_read_your_writes_disable()
    assert code_of(late.commit()) == 2000


def test_snapshot_reads_can_be_set_to_ignore_own_writes(db: Database, space: Space) -> None:
    tr = db.create_transaction()
    tr.options.set_snapshot_ryw_disable()
    tr.set(space.key("a"), b"1")
    assert tr.snapshot.get(space.key("a")).value is None
    assert list(tr.snapshot.get_range(space.prefix, space.end())) == []
    assert tr.get(space.key("a")).value == b"1"
    tr.options.set_snapshot_ryw_enable()
    assert tr.snapshot.get(space.key("a")).value == b"1"
