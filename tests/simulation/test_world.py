"""The world itself: turns and time, locks and kills, calls between actors, and a store with latencies."""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import pytest

from fairlead.actors.runtime.host import ActorDied
from fairlead.simulation.actor import Actor, Node
from fairlead.simulation.host import NodeClock, SimulatedHost
from fairlead.simulation.network import Delivery, Network, SimulatedRemote
from fairlead.simulation.store import LATE_US_MAX, LATE_US_MIN, Fate
from fairlead.simulation.world import START_US, Violation, World
from fairlead.zones.engines import StoreError, transact
from fairlead.zones.queue.items import new_item
from tests.simulation.stage import ALICE, SECOND, Stage

MS = 1_000


# --- Turns and time ---


def test_time_passes_by_waiting_only() -> None:
    stage = Stage()
    seen: list[int] = []

    def sleep_twice() -> None:
        for _ in range(2):
            stage.host.clock.sleep_us(3_600 * SECOND)
            seen.append(stage.world.elapsed_us)

    begun_us = stage.world.elapsed_us
    stage.host.spawn("sleeper", sleep_twice)
    stage.pass_us(8_000 * SECOND)
    assert [us - begun_us for us in seen] == [3_600 * SECOND, 7_200 * SECOND]


def order_of_turns(seed: int) -> list[int]:
    world = World(seed)
    host = SimulatedHost(world, "a#1", NodeClock(world, 0), Random(1), on_recycle=print, on_failure=print)
    turns: list[int] = []
    for number in range(8):
        host.spawn("task", partial(turns.append, number))
    world.run_until(START_US)
    return turns


def test_turns_of_one_instant_come_in_an_order_drawn_from_the_seed() -> None:
    assert order_of_turns(1) == order_of_turns(1)
    assert len({tuple(order_of_turns(seed)) for seed in range(5)}) == 5
    assert sorted(order_of_turns(1)) == list(range(8))


def test_a_clock_that_is_off_shows_another_time_and_advances_as_fast() -> None:
    stage = Stage()
    late = stage.add_host("b#1", skew_us=-2 * SECOND)
    assert late.clock.now_us() == stage.now_us - 2 * SECOND
    stage.play(lambda: late.clock.sleep_us(5 * SECOND), host=late)
    assert late.clock.now_us() == stage.now_us - 2 * SECOND


def test_a_task_that_loops_without_waiting_ends_the_run() -> None:
    stage = Stage()
    lock = stage.host.lock()

    def spin() -> None:
        while True:
            with lock:
                pass

    stage.host.spawn("spinning", spin)
    with pytest.raises(Violation, match="every turn ends"):
        stage.pass_us(SECOND)


def test_tasks_that_wake_each_other_without_end_at_one_instant_end_the_run() -> None:
    stage = Stage()

    def hurry() -> None:
        while True:
            stage.world.sleep_us(0)

    stage.host.spawn("hurrying", hurry)
    with pytest.raises(Violation, match="time goes on"):
        stage.pass_us(SECOND)


def test_a_loop_that_ends_by_an_error_is_a_violation() -> None:
    stage = Stage()
    stage.host.spawn("loop", lambda: 1 // 0)  # type: ignore[arg-type]
    with pytest.raises(Violation, match="ZeroDivisionError"):
        stage.pass_us(SECOND)


# --- Locks and conditions ---


def test_a_wait_on_a_condition_returns_whether_it_was_notified_or_timed_out() -> None:
    stage = Stage()
    lock = stage.host.lock()
    condition = stage.host.condition(lock)
    answers: list[tuple[bool, int]] = []

    def wait(seconds: float | None) -> None:
        with lock:
            answers.append((condition.wait(seconds), stage.world.elapsed_us - begun_us))

    def notify() -> None:
        stage.host.clock.sleep_us(SECOND)
        with lock:
            condition.notify_all()

    begun_us = stage.world.elapsed_us
    for body in (lambda: wait(None), lambda: wait(0.5), lambda: wait(2.0), notify):
        stage.host.spawn("task", body)
    stage.pass_us(5 * SECOND)
    assert answers == [(False, SECOND // 2), (True, SECOND), (True, SECOND)]


def test_two_tasks_are_never_inside_one_lock() -> None:
    stage = Stage()
    lock, inside, most = stage.host.lock(), 0, 0

    def enter() -> None:
        nonlocal inside, most
        for _ in range(5):
            with lock:
                inside += 1
                most = max(most, inside)
                stage.host.clock.sleep_us(10)
                inside -= 1

    tasks = [stage.host.spawn("task", enter) for _ in range(4)]
    stage.pass_us(SECOND)
    assert (most, any(task.is_alive() for task in tasks)) == (1, False)


# --- Actors and calls ---


class Echo:
    """An actor that answers after a while, and counts its calls."""

    def __init__(self, host: SimulatedHost) -> None:
        self.calls = 0
        self._host = host

    def echo(self, text: str, after_us: int = 0) -> tuple[str, int]:
        self._host.clock.sleep_us(after_us)
        self.calls += 1
        return text, self.calls

    def fail(self) -> None:
        raise ValueError("as asked")


class Pair:
    """A caller, and an `Echo` on another machine."""

    def __init__(self) -> None:
        self.stage = Stage()
        world = self.stage.world
        self.echo = Actor(world, Node(world, "far", skew_us=0), "echo", Echo)
        self.network = Network(world, world.random("network"), latency_us=MS)
        self.remote = SimulatedRemote(self.network, self.stage.host, self.echo)
        self.answers: list[tuple[Any, Exception | None]] = []
        world.after(0, self.echo.start)
        self.stage.pass_us(MS)

    def call(self, method: str, *args: Any) -> None:
        """Call, and record the answer."""
        self.stage.play(lambda: self.remote.call(method, *args, done=self._note))

    def pass_us(self, duration_us: int) -> None:
        self.stage.pass_us(duration_us)

    def between_turns(self, action: Callable[[], None]) -> None:
        self.stage.world.after(0, action)
        self.pass_us(MS)

    def _note(self, result: Any, error: Exception | None) -> None:
        self.answers.append((result, error))


def test_an_answer_and_an_error_come_back_from_another_actor() -> None:
    pair = Pair()
    pair.call("echo", "hello")
    pair.pass_us(SECOND)
    pair.call("fail")
    pair.pass_us(SECOND)
    assert pair.answers[0] == (("hello", 1), None)
    assert isinstance(pair.answers[1][1], ValueError)


def test_calls_of_a_killed_actor_end_with_actor_died_and_its_state_is_lost() -> None:
    pair = Pair()
    pair.call("echo", "before")
    pair.pass_us(SECOND)
    pair.call("echo", "meanwhile", SECOND)
    pair.pass_us(SECOND // 2)
    pair.between_turns(lambda: pair.echo.restart("test", 5 * SECOND))
    pair.call("echo", "to the dead")
    pair.pass_us(2 * SECOND)
    assert [type(error) for _, error in pair.answers] == [type(None), ActorDied, ActorDied]
    pair.pass_us(5 * SECOND)
    pair.call("echo", "reborn")
    pair.pass_us(SECOND)
    assert pair.answers[-1] == (("reborn", 1), None)


def test_a_task_of_a_killed_actor_does_nothing_more_even_in_finally() -> None:
    stage = Stage()
    victim = stage.add_host("b#1")
    did: list[str] = []

    def work() -> None:
        try:
            victim.clock.sleep_us(SECOND)
            did.append("went on")
        finally:
            stage.shard.transact(lambda attempt: attempt.tr.set(b"last words", b""))
            did.append("wrote")

    victim.spawn("work", work)
    stage.world.after(SECOND // 2, victim.kill)
    stage.pass_us(5 * SECOND)
    assert did == []


def test_a_paused_actor_goes_on_after_the_pause() -> None:
    stage = Stage()
    woke: list[int] = []
    begun_us = stage.now_us

    def nap() -> None:
        stage.host.clock.sleep_us(SECOND)
        woke.append(stage.now_us - begun_us)

    stage.host.spawn("napping", nap)
    stage.pass_us(MS)
    stage.host.paused_until_us = begun_us + 7 * SECOND
    stage.pass_us(10 * SECOND)
    assert woke == [7 * SECOND]


def test_the_early_end_of_a_pause_runs_the_postponed_turns_at_once() -> None:
    """Otherwise a loop whose turn came during the pause would wait long after the faults have ended."""
    stage = Stage()
    woke: list[int] = []
    begun_us = stage.now_us

    def nap() -> None:
        for _ in range(2):
            stage.host.clock.sleep_us(SECOND)
            woke.append(stage.now_us - begun_us)

    stage.host.spawn("napping", nap)
    stage.pass_us(MS)
    stage.host.paused_until_us = begun_us + 60 * SECOND
    stage.pass_us(3 * SECOND)
    stage.host.resume()
    ended_us = stage.now_us - begun_us
    stage.pass_us(2 * SECOND)
    assert woke == [ended_us, ended_us + SECOND]


@pytest.mark.parametrize("lost, carried_out", [({"request_lost": True}, 0), ({"reply_lost": True}, 1)])
def test_a_lost_call_ends_with_actor_died_and_may_have_been_carried_out(
    lost: dict[str, bool], carried_out: int
) -> None:
    pair = Pair()
    pair.network.perturb.append(lambda delivery: Delivery(MS, SECOND, **lost))
    pair.call("echo", "hello")
    pair.pass_us(3 * SECOND)
    assert [type(error) for _, error in pair.answers] == [ActorDied]
    pair.network.perturb.clear()
    pair.call("echo", "again")
    pair.pass_us(SECOND)
    assert pair.answers[-1] == (("again", carried_out + 1), None)


# --- The store ---


def test_a_hundred_reads_sent_together_take_as_long_as_one() -> None:
    stage = Stage()

    def read_many() -> int:
        tr = stage.database.create_transaction()
        tr.get_read_version().wait()
        begun_us = stage.now_us
        reads = [tr.get(b"key %d" % number) for number in range(100)]
        assert [read.value for read in reads] == [None] * 100
        return stage.now_us - begun_us

    assert 0 < stage.play(read_many) < 3 * MS


def test_another_commit_between_a_read_and_its_commit_is_a_conflict() -> None:
    stage = Stage()
    attempts: list[bytes | None] = []

    def add_one(tr: Any) -> None:
        value = tr.get(b"n").value
        attempts.append(value)
        stage.host.clock.sleep_us(20 * MS)  # Time for the other task to read the same value.
        tr.set(b"n", b"%d" % (int(value or b"0") + 1))

    for _ in range(2):
        stage.host.spawn("adding", lambda: transact(stage.database, add_one))
    stage.pass_us(SECOND)
    assert sorted(attempts, key=lambda value: value or b"") == [None, None, b"1"]


def test_a_commit_that_is_on_its_way_is_applied_although_its_sender_dies() -> None:
    stage = Stage()
    sender = stage.add_host("b#1")
    sender.spawn("sending", lambda: transact(stage.database, lambda tr: tr.set(b"last", b"words")))
    for _ in range(10_000):
        stage.pass_us(10)
        if stage.store.commits_sent > 1:
            break
    stage.world.after(0, sender.kill)
    stage.pass_us(SECOND)
    assert stage.play(lambda: transact(stage.database, lambda tr: tr.get(b"last").value)) == b"words"


@pytest.mark.parametrize(
    "fate, code, applied",
    [
        (Fate.CONFLICT, 1020, 0),
        (Fate.TOO_OLD, 1007, 0),
        (Fate.UNKNOWN_APPLIED, 1021, 1),
        (Fate.UNKNOWN_LOST, 1021, 0),
        (Fate.UNKNOWN_LATE, 1021, 1),
        (Fate.TIMED_OUT_LATE, 1031, 1),
    ],
)
def test_a_commit_ends_as_its_fate_says(fate: Fate, code: int, applied: int) -> None:
    stage = Stage()

    def commit() -> int:
        tr = stage.database.create_transaction()
        tr.add(b"n", (1).to_bytes(8, "little"))
        stage.store.draw_fate.append(lambda: fate)
        with pytest.raises(StoreError) as raised:
            tr.commit().wait()
        stage.store.draw_fate.clear()
        assert raised.value.code == code
        stage.world.sleep_us(LATE_US_MAX)
        value = transact(stage.database, lambda tr: tr.get(b"n").value)
        return int.from_bytes(value or b"", "little")

    assert stage.play(commit) == applied


def test_a_late_commit_is_refused_if_what_it_read_has_changed_by_then(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    late_us = iter([LATE_US_MAX, LATE_US_MIN])  # When the commit arrives, and when its sender is answered.
    monkeypatch.setattr(stage.store, "_late_us", lambda: next(late_us))

    def add_one(tr: Any) -> None:
        tr.set(b"n", b"%d" % (int(tr.get(b"n").value or b"0") + 1))

    def commit() -> bytes | None:
        late = stage.database.create_transaction()
        add_one(late)
        stage.store.draw_fate.append(lambda: Fate.UNKNOWN_LATE)
        with pytest.raises(StoreError):
            late.commit().wait()
        stage.store.draw_fate.clear()
        assert stage.store.late_commits == 1
        transact(stage.database, add_one)
        stage.world.sleep_us(LATE_US_MAX)
        return transact(stage.database, lambda tr: tr.get(b"n").value)

    assert stage.play(commit) == b"1"


def test_a_store_that_drops_a_version_refuses_all_later_reads_of_that_transaction_only() -> None:
    stage = Stage()
    codes: list[int] = []

    def read() -> None:
        tr = stage.database.create_transaction()
        stage.store.forgets_version.append(lambda: True)
        for _ in range(2):
            with pytest.raises(StoreError) as raised:
                tr.get(b"n").wait()
            codes.append(raised.value.code)
            stage.store.forgets_version.clear()
        tr.on_error(raised.value).wait()
        assert tr.get(b"n").value is None

    stage.play(read)
    assert codes == [1007, 1007]


def test_a_call_that_is_carried_out_twice_is_answered_once() -> None:
    pair = Pair()
    pair.network.perturb.append(lambda delivery: delivery._replace(duplicate_us=10 * MS))
    pair.call("echo", "hello")
    pair.pass_us(SECOND)
    pair.network.perturb.clear()
    pair.call("echo", "again")
    pair.pass_us(SECOND)
    assert pair.answers == [(("hello", 1), None), (("again", 3), None)]


def test_a_duplicate_call_does_not_reach_the_next_incarnation() -> None:
    """Otherwise a worker that drained and restarted would be told to drain again."""
    pair = Pair()
    pair.network.perturb.append(lambda delivery: delivery._replace(duplicate_us=100 * MS))
    pair.call("echo", "hello")
    pair.between_turns(lambda: pair.echo.restart("test", 10 * MS))
    pair.pass_us(SECOND)
    pair.network.perturb.clear()
    pair.call("echo", "again")
    pair.pass_us(SECOND)
    assert pair.answers[-1] == (("again", 1), None)


def test_an_unavailable_store_answers_when_it_is_available_again() -> None:
    stage = Stage()
    stage.store.unavailable_until_us = stage.now_us + 3 * SECOND
    back_us = stage.store.unavailable_until_us

    def enqueue() -> None:
        zone = stage.shard.zone(ALICE)
        item = new_item("mail")
        stage.shard.transact(lambda attempt: zone.enqueue(attempt.tr, item, item_id=bytes(16), now_us=attempt.now_us))

    stage.play(enqueue)
    assert back_us <= stage.now_us < back_us + SECOND // 10
    assert len(list(stage.replica.items())) == 1
