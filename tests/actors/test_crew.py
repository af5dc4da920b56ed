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


def test_a_worker_that_nobody_heard_of_has_no_room() -> None:
    assert Member().capacity == 0


def test_its_room_is_what_it_wants_less_what_it_has_and_what_is_on_its_way() -> None:
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


def test_one_that_wants_less_than_it_has_has_no_room() -> None:
    assert answered(in_flight_limit=3, held=5).capacity == 0


def test_one_that_died_has_no_room_until_it_answers_again() -> None:
    member = answered(in_flight_limit=10, held=4)
    refs = [item_ref(1)]
    member.send(refs)
    member.arrive(refs, None)
    assert member.capacity == 0
    member.update(report(in_flight_limit=10, incarnation=b"second life"))
    assert member.capacity == 10, "what the first life held is forgotten: it will lapse"


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


def test_a_report_of_another_life_counts_whatever_it_says() -> None:
    member = answered(in_flight_limit=10, held=5, progress=700)
    member.update(report(in_flight_limit=10, held=0, progress=0, incarnation=b"second life"))
    assert member.capacity == 10


# --- Limits of kinds ---


def test_a_kind_without_a_limit_has_room_without_end() -> None:
    assert capacity_for_kinds([answered()], {"mail": None}, 99) == {"mail": 99}


def test_a_limit_counts_what_all_workers_hold_and_what_is_on_its_way() -> None:
    one, other = answered(kinds={"mail": 2}), answered(kinds={"mail": 1})
    other.send([item_ref(1), item_ref(2, kind="index")])
    assert capacity_for_kinds([one, other], {"mail": 5}, 99) == {"mail": 1}


def test_a_limit_that_was_overstepped_leaves_no_room() -> None:
    assert capacity_for_kinds([answered(kinds={"mail": 9})], {"mail": 5}, 99) == {"mail": 0}


def test_a_kind_with_a_limit_has_no_room_while_a_worker_is_unheard_of() -> None:
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
    assert member.take_orphans({b"first": True}) == [refs]
    assert (member.incarnations, member.take_orphans({b"first": True})) == ([], []), "it is told once"


def test_it_leaves_behind_what_was_on_its_way_to_it() -> None:
    """No other life takes it. Before, such items waited out their leases."""
    member = answered(incarnation=b"first")
    sent_to = member.send([item_ref(1)])
    assert (sent_to, member.incarnations) == (b"first", [b"first"])
    member.arrive([item_ref(1)], None)
    member.update(report(incarnation=b"second"))
    assert member.take_orphans({b"first": True}) == [[item_ref(1)]]


def test_so_does_one_that_is_back_before_its_end_was_seen() -> None:
    member = Member()
    taking(member, [item_ref(1)])
    member.update(report(incarnation=b"second"))
    taking(member, [item_ref(2)], incarnation=b"second")
    assert member.incarnations == [b"first", b"second"]
    assert member.take_orphans({b"first": True}) == [[item_ref(1)]]
    assert member.take_orphans({b"second": True}) == [[item_ref(2)]]


def test_what_a_former_life_had_is_forgotten_if_its_end_cannot_be_seen() -> None:
    """It may be on another machine; then its leases decide."""
    member = Member()
    taking(member, [item_ref(1)])
    member.update(report(incarnation=b"second"))
    taking(member, [item_ref(2)], incarnation=b"second")
    assert member.take_orphans({b"first": False, b"second": False}) == []
    assert member.incarnations == [b"second"]


def test_what_a_life_had_is_kept_that_ended_while_others_were_looked_at() -> None:
    """It was not seen whether that one has: the next look will tell."""
    member = Member()
    taking(member, [item_ref(1)])
    member.update(report(incarnation=b"second"))
    assert member.take_orphans({b"another": True}) == []
    assert member.take_orphans({b"first": True}) == [[item_ref(1)]]


def test_of_what_a_worker_was_sent_as_much_is_remembered_as_it_can_hold() -> None:
    member = Member()
    for number in range(2 * SENT_MAX):
        taking(member, [item_ref(number)])
    assert member.take_orphans({b"first": True}) == [[item_ref(number) for number in range(SENT_MAX, 2 * SENT_MAX)]]


# --- The crew ---


@pytest.fixture
def stage() -> Stage:
    return Stage()


def crew_of(stage: Stage, count: int) -> tuple[WorkerPool, list[Played]]:
    """Return a crew whose workers the test plays, each with room for ten once it has been heard of."""
    workers = [Played(stage.host) for _ in range(count)]
    lock = stage.host.lock()
    return WorkerPool(workers, lock, stage.host.condition(lock), limits={}), workers


def test_what_is_dealt_to_a_worker_is_on_its_way_until_it_answers(stage: Stage) -> None:
    crew, [worker] = crew_of(stage, 1)
    crew.members[0].update(report(in_flight_limit=10))
    refs = [item_ref(1), item_ref(2)]
    assignments, _ = crew.assign(refs)
    assert (crew.on_the_way, crew.capacity) == (2, 8)
    crew.place(assignments)
    [call] = worker.taken()
    assert (call.method, call.args) == ("place", (refs, b"first life"))
    call.answer(report(in_flight_limit=10, held=2))
    stage.pass_ms(1)
    assert (crew.on_the_way, crew.capacity) == (0, 8)


def test_a_worker_that_is_dealt_nothing_is_not_called_and_leaves_nothing_behind(stage: Stage) -> None:
    crew, workers = crew_of(stage, 2)
    for member in crew.members:
        member.update(report(in_flight_limit=10))
    crew.place(crew.assign([item_ref(1)])[0])
    assert [len(worker.taken()) for worker in workers] == [1, 0]
    assert [member.incarnations for member in crew.members] == [[b"first life"], []]


def test_nothing_is_dealt_while_nobody_is_known_to_live(stage: Stage) -> None:
    crew, _ = crew_of(stage, 2)
    assert crew.assign([item_ref(1)]) == ([], [item_ref(1)])
    assert crew.on_the_way == 0


def test_a_worker_is_asked_one_question_at_a_time(stage: Stage) -> None:
    crew, [worker] = crew_of(stage, 1)
    crew.ask_the_dead()
    crew.ask_the_dead()
    [call] = worker.taken()
    assert (call.method, call.args) == ("await_progress", (-1,))
    call.answer(report(progress=7))
    stage.pass_ms(1)
    crew.ask_the_dead()
    assert worker.taken() == [], "it lives"
    crew.ask_the_living()
    assert [call.args for call in worker.taken()] == [(7,)]


# --- The isolated worker ---


def isolating_crew(stage: Stage) -> tuple[WorkerPool, Played, Played]:
    """Return a crew with a worker, which lives, and an isolated one, which nobody has heard of."""
    worker, isolated = Played(stage.host), Played(stage.host)
    lock = stage.host.lock()
    crew = WorkerPool([worker], lock, stage.host.condition(lock), limits={}, isolated=isolated)
    crew.members[0].update(report(in_flight_limit=10))
    return crew, worker, isolated


def test_what_must_run_alone_goes_to_the_isolated_worker_and_all_else_to_others(stage: Stage) -> None:
    crew, worker, isolated = isolating_crew(stage)
    crew.members[1].update(report(in_flight_limit=1, incarnation=b"isolated life"))
    suspect, others = item_ref(2, isolated=True), [item_ref(1), item_ref(3)]
    assignments, unassigned = crew.assign([others[0], suspect, others[1]])
    crew.place(assignments)
    assert [call.args for call in worker.taken()] == [(others, b"first life")]
    assert [call.args for call in isolated.taken()] == [([suspect], b"isolated life")]
    assert unassigned == []


def test_what_must_run_alone_is_nobody_elses_if_the_isolated_worker_has_died(stage: Stage) -> None:
    crew, _, _ = isolating_crew(stage)
    suspect, other = item_ref(2, isolated=True), item_ref(1)
    assignments, unassigned = crew.assign([other, suspect])
    assert [assignment.refs for assignment in assignments] == [[other]]
    assert unassigned == [suspect]


def test_what_an_isolated_worker_can_take_is_one_item_and_no_room_for_others(stage: Stage) -> None:
    crew, _, _ = isolating_crew(stage)
    assert crew.poison_candidate_capacity == 0, "nobody knows whether it lives"
    crew.members[1].update(report(in_flight_limit=1))
    assert (crew.poison_candidate_capacity, crew.capacity, crew.in_flight_limit) == (1, 10, 10)
    crew.assign([item_ref(1, isolated=True)])
    assert (crew.poison_candidate_capacity, crew.capacity) == (0, 10)


def test_an_isolated_worker_that_is_not_there_is_asked_once_and_again_if_there_is_use_for_it(stage: Stage) -> None:
    """It may hold something of this manager's former life; and most consumers never start one."""
    crew, _, isolated = isolating_crew(stage)
    crew.ask_the_dead()
    [call] = isolated.taken()
    call.answer(error=ActorDied())
    stage.pass_ms(1)
    crew.ask_the_dead()
    assert isolated.taken() == []
    crew.met_poison_candidates = True
    crew.ask_the_dead()
    assert [call.method for call in isolated.taken()] == ["await_progress"]


# --- Dealing ---


def test_items_go_where_there_is_most_room() -> None:
    assignments = assign([item_ref(number) for number in range(6)], [5, 3])
    assert [len(assignment) for assignment in assignments] == [4, 2]


def test_items_keep_their_order() -> None:
    refs = [item_ref(number) for number in range(5)]
    assert assign(refs, [5]) == [refs]


def test_items_of_a_queue_stay_together() -> None:
    refs = [item_ref(number) for number in range(6)]
    assert assign(refs, [5, 5]) == [refs[:3], refs[3:]]


def test_nothing_goes_to_a_worker_without_room_while_another_has_some() -> None:
    assert [len(assignment) for assignment in assign([item_ref(1), item_ref(2)], [0, 2])] == [0, 2]


def test_what_was_leased_for_a_worker_that_died_meanwhile_goes_to_one_that_lives() -> None:
    """It may have to wait there a little; sent to the dead one it would have to lapse."""
    assignments = assign([item_ref(number) for number in range(4)], [None, 1])
    assert [len(assignment) for assignment in assignments] == [0, 4]


def test_if_all_died_meanwhile_nobody_gets_anything() -> None:
    """Before, they were sent all the same, to whichever life would be there; if none was in time, they had to lapse."""
    assert assign([item_ref(1), item_ref(2)], [None, None]) == [[], []]


def test_a_worker_whose_life_is_seen_to_have_ended_is_given_nothing_until_it_answers_again() -> None:
    """Before, what had just been freed went to the dead worker, or was lost on the way to its next life."""
    member = Member()
    member.update(report(incarnation=b"first", in_flight_limit=10))
    member.take_orphans({b"another": True})
    assert member.capacity == 10
    member.take_orphans({b"first": True})
    assert (member.report, member.capacity) == (None, 0)
    member.update(report(incarnation=b"second", in_flight_limit=10))
    assert member.capacity == 10


def test_a_worker_that_has_a_new_life_already_keeps_its_room_when_its_last_one_is_seen_to_have_ended() -> None:
    member = Member()
    member.update(report(incarnation=b"first", in_flight_limit=10))
    member.update(report(incarnation=b"second", in_flight_limit=10))
    member.take_orphans({b"first": True})
    assert member.capacity == 10
