"""What a manager knows of its workers, and how it deals items out."""

from __future__ import annotations

import pytest

from fairlead.actors.dispatch.pool_member import SENT_MAX, Member
from fairlead.actors.dispatch.worker_pool import WorkerPool, assign, capacity_for_kinds, share_of
from fairlead.actors.messages import ItemRef
from fairlead.actors.runtime.host import ActorDied
from tests.actors.stage import Played, Stage, item_ref, report


def answered(**fields: object) -> Member:
    """Return a worker that has reported."""
    member = Member()
    member.update(report(**fields))  # type: ignore[arg-type]
    return member


def test_a_worker_without_a_report_has_no_capacity() -> None:
    assert Member().capacity == 0


def test_its_capacity_is_what_it_wants_less_what_it_has_and_what_is_on_its_way() -> None:
    member = answered(in_flight_limit=10, held=3)
    assert member.capacity == 7
    member.send([item_ref(1), item_ref(2)])
    assert member.capacity == 5


def test_what_arrived_is_in_its_report_and_no_longer_on_its_way() -> None:
    member = answered(in_flight_limit=10)
    refs = [item_ref(1), item_ref(2)]
    member.send(refs)
    member.arrive(refs, report(in_flight_limit=10, held=2))
    assert member.capacity == 8


def test_one_that_wants_less_than_it_has_has_no_capacity() -> None:
    assert answered(in_flight_limit=3, held=5).capacity == 0


def test_one_that_died_has_no_capacity_until_it_answers_again() -> None:
    member = answered(in_flight_limit=10, held=4)
    refs = [item_ref(1)]
    member.send(refs)
    member.arrive(refs, None)
    assert member.capacity == 0
    member.update(report(in_flight_limit=10, incarnation=b"second life"))
    assert member.capacity == 10, "what the first life held is forgotten: it will expiry"


def test_of_two_reports_that_overtook_each_other_the_newer_counts() -> None:
    member = answered(in_flight_limit=10, held=5, progress=7)
    member.update(report(in_flight_limit=10, held=9, progress=3))
    assert member.capacity == 5


def test_of_two_reports_between_which_nothing_left_the_fuller_is_the_newer() -> None:
    """Two batches arrive at once, and their answers change places."""
    member = answered(in_flight_limit=10, held=8, progress=7, kinds={"mail": 2})
    member.update(report(in_flight_limit=10, held=6, progress=7, kinds={"mail": 1}))
    assert member.capacity == 2
    assert capacity_for_kinds([member], {"mail": 3}, 99) == {"mail": 1}


def test_a_report_of_another_incarnation_replaces_the_last() -> None:
    member = answered(in_flight_limit=10, held=5, progress=700)
    member.update(report(in_flight_limit=10, held=0, progress=0, incarnation=b"second life"))
    assert member.capacity == 10


# --- Limits of kinds ---


def test_a_kind_without_a_limit_has_capacity_without_end() -> None:
    assert capacity_for_kinds([answered()], {"mail": None}, 99) == {"mail": 99}


def test_a_limit_counts_what_all_workers_hold_and_what_is_on_its_way() -> None:
    one, other = answered(kinds={"mail": 2}), answered(kinds={"mail": 1})
    other.send([item_ref(1), item_ref(2, kind="index")])
    assert capacity_for_kinds([one, other], {"mail": 5}, 99) == {"mail": 1}


def test_a_limit_that_was_overstepped_leaves_no_capacity() -> None:
    assert capacity_for_kinds([answered(kinds={"mail": 9})], {"mail": 5}, 99) == {"mail": 0}


def test_a_kind_with_a_limit_has_no_capacity_while_a_worker_has_not_reported() -> None:
    """A manager that was just restarted does not know what its workers run."""
    assert capacity_for_kinds([answered(), Member()], {"mail": 5, "index": None}, 99) == {"mail": 0, "index": 99}


def test_a_worker_that_died_runs_nothing() -> None:
    """Its process is gone, and so are its handlers: a limit need not wait for its return."""
    dead = answered(kinds={"mail": 3})
    dead.update(None)
    assert capacity_for_kinds([answered(kinds={"mail": 1}), dead], {"mail": 5}, 99) == {"mail": 4}


@pytest.mark.parametrize("limit, count, shares", [(5, 2, [3, 2]), (1, 3, [1, 0, 0]), (6, 3, [2, 2, 2]), (7, 1, [7])])
def test_the_shares_of_a_limit_add_up(limit: int, count: int, shares: list[int]) -> None:
    assert [share_of(limit, index=index, count=count) for index in range(count)] == shares


def test_no_limit_is_no_limit_for_each() -> None:
    assert share_of(None, index=1, count=2) is None


# --- What a life leaves behind ---


def taking(member: Member, refs: list[ItemRef], incarnation: bytes = b"first") -> None:
    """Let a life of a worker take items."""
    member.update(report(incarnation=incarnation))
    member.send(refs)
    member.arrive(refs, report(incarnation=incarnation))


def test_a_worker_that_died_leaves_behind_what_it_had_taken() -> None:
    refs = [item_ref(number) for number in range(4)]
    member = Member()
    taking(member, refs[:2])
    taking(member, refs[2:])
    assert member.incarnations == [b"first"]
    assert member.take_orphans({b"first": True}) == [(b"first", refs)]
    assert (member.incarnations, member.take_orphans({b"first": True})) == ([], []), "it is told once"


def test_it_leaves_behind_what_was_on_its_way_to_it() -> None:
    """No other life takes it. Before, such items waited out their leases."""
    member = answered(incarnation=b"first")
    sent_to = member.send([item_ref(1)])
    assert (sent_to, member.incarnations) == (b"first", [b"first"])
    member.arrive([item_ref(1)], None)
    member.update(report(incarnation=b"second"))
    assert member.take_orphans({b"first": True}) == [(b"first", [item_ref(1)])]


def test_so_does_one_that_is_back_before_its_end_was_seen() -> None:
    member = Member()
    taking(member, [item_ref(1)])
    member.update(report(incarnation=b"second"))
    taking(member, [item_ref(2)], incarnation=b"second")
    assert member.incarnations == [b"first", b"second"]
    assert member.take_orphans({b"first": True}) == [(b"first", [item_ref(1)])]
    assert member.take_orphans({b"second": True}) == [(b"second", [item_ref(2)])]


def test_items_of_an_earlier_incarnation_are_forgotten_if_its_end_cannot_be_seen() -> None:
    """It may be on another machine; then its leases decide."""
    member = Member()
    taking(member, [item_ref(1)])
    member.update(report(incarnation=b"second"))
    taking(member, [item_ref(2)], incarnation=b"second")
    assert member.take_orphans({b"first": False, b"second": False}) == []
    assert member.incarnations == [b"second"]


def test_items_of_an_incarnation_that_ends_during_the_check_are_kept() -> None:
    """It was not seen whether that one has: the next look will tell."""
    member = Member()
    taking(member, [item_ref(1)])
    member.update(report(incarnation=b"second"))
    assert member.take_orphans({b"another": True}) == []
    assert member.take_orphans({b"first": True}) == [(b"first", [item_ref(1)])]


def test_of_what_a_worker_was_sent_as_much_is_remembered_as_it_can_hold() -> None:
    member = Member()
    for number in range(2 * SENT_MAX):
        taking(member, [item_ref(number)])
    refs = [item_ref(number) for number in range(SENT_MAX, 2 * SENT_MAX)]
    assert member.take_orphans({b"first": True}) == [(b"first", refs)]


# --- The pool ---


@pytest.fixture
def stage() -> Stage:
    return Stage()


def pool_of(stage: Stage, count: int) -> tuple[WorkerPool, list[Played]]:
    """Return a pool whose workers the test plays, each with capacity for ten once it has been heard of."""
    workers = [Played(stage.host) for _ in range(count)]
    lock = stage.host.lock()
    return WorkerPool(workers, lock, stage.host.condition(lock), limits=dict), workers


def test_what_is_assigned_to_a_worker_is_on_its_way_until_it_answers(stage: Stage) -> None:
    pool, [worker] = pool_of(stage, 1)
    pool.members[0].update(report(in_flight_limit=10))
    refs = [item_ref(1), item_ref(2)]
    assignments, _ = pool.assign(refs)
    assert (pool.on_the_way, pool.capacity) == (2, 8)
    pool.place(assignments)
    [call] = worker.taken()
    assert (call.method, call.args) == ("place", (refs, b"first life"))
    call.answer(report(in_flight_limit=10, held=2))
    stage.pass_ms(1)
    assert (pool.on_the_way, pool.capacity) == (0, 8)


def test_a_worker_that_is_assigned_nothing_is_not_called_and_leaves_nothing_behind(stage: Stage) -> None:
    pool, workers = pool_of(stage, 2)
    for member in pool.members:
        member.update(report(in_flight_limit=10))
    pool.place(pool.assign([item_ref(1)])[0])
    assert [len(worker.taken()) for worker in workers] == [1, 0]
    assert [member.incarnations for member in pool.members] == [[b"first life"], []]


def test_nothing_is_assigned_while_no_worker_is_known_to_live(stage: Stage) -> None:
    pool, _ = pool_of(stage, 2)
    assert pool.assign([item_ref(1)]) == ([], [item_ref(1)])
    assert pool.on_the_way == 0


def test_a_worker_is_asked_one_question_at_a_time(stage: Stage) -> None:
    pool, [worker] = pool_of(stage, 1)
    pool.ask_the_dead()
    pool.ask_the_dead()
    [call] = worker.taken()
    assert (call.method, call.args) == ("await_progress", (-1,))
    call.answer(report(progress=7))
    stage.pass_ms(1)
    pool.ask_the_dead()
    assert worker.taken() == [], "it lives"
    pool.ask_the_living()
    assert [call.args for call in worker.taken()] == [(7,)]


# --- The isolated worker ---


def isolating_pool(stage: Stage) -> tuple[WorkerPool, Played, Played]:
    """Return a pool with a worker, which lives, and an isolated one, which nobody has heard of."""
    worker, isolated = Played(stage.host), Played(stage.host)
    lock = stage.host.lock()
    pool = WorkerPool([worker], lock, stage.host.condition(lock), limits=dict, isolated=isolated)
    pool.members[0].update(report(in_flight_limit=10))
    return pool, worker, isolated


def test_poison_candidates_go_to_the_isolated_worker_and_all_other_items_to_others(stage: Stage) -> None:
    pool, worker, isolated = isolating_pool(stage)
    pool.members[1].update(report(in_flight_limit=1, incarnation=b"isolated life"))
    poison_candidate, others = item_ref(2, isolated=True), [item_ref(1), item_ref(3)]
    assignments, unassigned = pool.assign([others[0], poison_candidate, others[1]])
    pool.place(assignments)
    assert [call.args for call in worker.taken()] == [(others, b"first life")]
    assert [call.args for call in isolated.taken()] == [([poison_candidate], b"isolated life")]
    assert unassigned == []


def test_poison_candidates_go_to_no_other_worker_if_the_isolated_one_has_died(stage: Stage) -> None:
    pool, _, _ = isolating_pool(stage)
    poison_candidate, other = item_ref(2, isolated=True), item_ref(1)
    assignments, unassigned = pool.assign([other, poison_candidate])
    assert [assignment.refs for assignment in assignments] == [[other]]
    assert unassigned == [poison_candidate]


def test_what_an_isolated_worker_can_take_is_one_item_and_no_capacity_for_others(stage: Stage) -> None:
    pool, _, _ = isolating_pool(stage)
    assert pool.poison_candidate_capacity == 0, "nobody knows whether it lives"
    pool.members[1].update(report(in_flight_limit=1))
    assert (pool.poison_candidate_capacity, pool.capacity, pool.in_flight_limit) == (1, 10, 10)
    pool.assign([item_ref(1, isolated=True)])
    assert (pool.poison_candidate_capacity, pool.capacity) == (0, 10)


def test_an_isolated_worker_that_is_not_there_is_asked_once_and_again_if_there_is_use_for_it(stage: Stage) -> None:
    """It may hold something of this manager's former life; and most consumers never start one."""
    pool, _, isolated = isolating_pool(stage)
    pool.ask_the_dead()
    [call] = isolated.taken()
    call.answer(error=ActorDied())
    stage.pass_ms(1)
    pool.ask_the_dead()
    assert isolated.taken() == []
    pool.met_poison_candidates = True
    pool.ask_the_dead()
    assert [call.method for call in isolated.taken()] == ["await_progress"]


# --- Dealing ---


def test_items_go_where_there_is_most_capacity() -> None:
    assignments = assign([item_ref(number) for number in range(6)], [5, 3])
    assert [len(assignment) for assignment in assignments] == [4, 2]


def test_items_keep_their_order() -> None:
    refs = [item_ref(number) for number in range(5)]
    assert assign(refs, [5]) == [refs]


def test_items_of_a_queue_stay_together() -> None:
    refs = [item_ref(number) for number in range(6)]
    assert assign(refs, [5, 5]) == [refs[:3], refs[3:]]


def test_nothing_goes_to_a_worker_without_capacity_while_another_has_some() -> None:
    assert [len(assignment) for assignment in assign([item_ref(1), item_ref(2)], [0, 2])] == [0, 2]


def test_items_leased_for_a_worker_that_died_go_to_one_that_lives() -> None:
    """It may have to wait there a little; sent to the dead one it would have to expiry."""
    assignments = assign([item_ref(number) for number in range(4)], [None, 1])
    assert [len(assignment) for assignment in assignments] == [0, 4]


def test_if_all_workers_died_none_gets_anything() -> None:
    """Before, they were sent all the same, to any incarnation; if none came in time, their leases expired."""
    assert assign([item_ref(1), item_ref(2)], [None, None]) == [[], []]


def test_a_worker_whose_incarnation_has_ended_gets_nothing_until_it_answers_again() -> None:
    """Before, what had just been freed went to the dead worker, or was lost on the way to its next life."""
    member = Member()
    member.update(report(incarnation=b"first", in_flight_limit=10))
    member.take_orphans({b"another": True})
    assert member.capacity == 10
    member.take_orphans({b"first": True})
    assert (member.report, member.capacity) == (None, 0)
    member.update(report(incarnation=b"second", in_flight_limit=10))
    assert member.capacity == 10


def test_a_worker_with_a_new_incarnation_keeps_its_capacity_when_the_last_one_is_seen_to_have_ended() -> None:
    member = Member()
    member.update(report(incarnation=b"first", in_flight_limit=10))
    member.update(report(incarnation=b"second", in_flight_limit=10))
    member.take_orphans({b"first": True})
    assert member.capacity == 10
