"""The limit of a kind over the whole fleet, and an operator who changes it while managers hold slots and tokens of it.

A manager takes slots and tokens from the kind's own shard ahead of time, and spends them without a transaction. So it
may hold them when the policy by which they were granted is no longer in force. It learns of the later policy when it
processes a pointer, or when it asks for more.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from fairlead.actors.dispatch.concurrency_limiter import ROUND_S
from fairlead.actors.manager import Manager
from fairlead.actors.messages import ItemRef, Report, ServeReply
from fairlead.actors.settings import ConsumerSettings
from fairlead.zones.engines.api.errors import NOT_COMMITTED
from fairlead.zones.policy import policies
from fairlead.zones.transaction_runner import Attempt
from tests.actors.stage import Played, report
from tests.simulation.races.director import Role
from tests.simulation.races.missing_guards import planted
from tests.simulation.races.scene import Scene, registry_of
from tests.simulation.stage import SECOND

THROTTLE_US = 110_000  # `throttle_delay_ms`, and a moment.
CALL_US = 10_000  # Of a call to the worker and back.
ROUND_US = int(ROUND_S * SECOND) + 10_000  # From one request to the next, and a moment.


class Mailer:
    """A manager that serves Alice's pointer when the story says so. `running`: the mails that its worker runs.

    The task of its commits for limits has the name `limits`.
    """

    def __init__(self, scene: Scene, name: str) -> None:
        self.running: list[ItemRef] = []
        self._scene = scene
        self._ended = 0
        self._host = scene.new_host(name)
        self._shard = scene.open_in(self._host)
        settings = ConsumerSettings(managers=1, workers=1)
        worker = Played(self._host, self._answer)
        self._manager = Manager(
            self._host, {"s0": self._shard}, registry_of(["mail"]), settings, [worker], consumer_id=name.encode()
        )

    def _answer(self, method: str, args: tuple[Any, ...]) -> Report:
        if method == "place":
            self.running.extend(args[0])
        kinds = dict(Counter(ref.kind for ref in self.running))
        return report(in_flight_limit=100, held=len(self.running), progress=self._ended, kinds=kinds)

    def visit(self) -> Role[ServeReply]:
        """Return a role that serves Alice's pointer once, after a throttle: by then a request for slots is answered."""
        self._scene.pass_us(THROTTLE_US)
        ref = self._scene.ref
        return Role(self._scene.directed, self._host, self._shard, lambda _: self._manager.serve("s0", [ref]))

    def serves(self) -> None:
        """Serve Alice's pointer once."""
        self.visit().runs()

    def ends_all(self) -> None:
        """Let all its mails end."""
        for ref in self.running:
            self._scene.has(lambda alice, ref=ref: alice.cancel(ref.item_id))  # type: ignore[misc]
        self.running.clear()
        self._ended += 1

    def asks_its_worker(self) -> None:
        """Let the manager ask what its worker runs."""
        self._scene.play(self._ask, host=self._host)
        self._scene.pass_us(CALL_US)

    def _ask(self) -> None:
        self._manager._pool.usage("mail")


def limit(scene: Scene, **changes: Any) -> None:
    """Change the limit of mails, as an operator does."""

    def body(attempt: Attempt) -> None:
        policies.change_kind_policy(attempt.tr, "mail", now_us=attempt.now_us, **changes)

    scene.play(lambda: scene.shard.transact(body))


# --- A limit is lifted, and set anew ---


def a_limit_is_lifted_and_set_anew(scene: Scene) -> int:
    """Two mails may run at once. The first manager has two unused slots when an operator lifts the limit.

    The store forgets these slots. The operator then sets the same limit anew. The first manager observes only this
    one, and the second manager is granted both slots. Return how many mails run at once.
    """
    limit(scene, max_running=2)
    first, second = Mailer(scene, "first"), Mailer(scene, "second")
    scene.has(lambda alice: alice.enqueue("mail"))
    first.serves()  # It observes the limit, and asks for slots.
    first.serves()
    assert len(first.running) == 1
    scene.pass_us(ROUND_US)  # It asks to keep both slots. It asks no more until it has not used them for four rounds.
    first.ends_all()
    limit(scene, max_running=None)
    limit(scene, max_running=2)
    first.serves()  # It observes the limit that was set anew; no mail is there.
    for _ in range(4):
        scene.has(lambda alice: alice.enqueue("mail"))
    second.serves()
    second.serves()
    assert len(second.running) == 2
    first.serves()
    return len(first.running) + len(second.running)


def test_slots_from_before_a_limit_was_lifted_run_nothing_under_the_limit_that_was_set_anew() -> None:
    scene = Scene()
    assert a_limit_is_lifted_and_set_anew(scene) == 2
    scene.check_stored()


def test_with_slots_from_before_a_limit_was_lifted_too_many_mails_run_at_once() -> None:
    with planted("a manager keeps slots from before a limit was lifted and set anew"):
        assert a_limit_is_lifted_and_set_anew(Scene()) == 4


# --- A limit changes while a manager asks for tokens ---


def a_limit_changes_while_a_manager_asks_for_tokens(scene: Scene) -> Mailer:
    """One mail may start in a minute, and the manager's request for the token is on its way as the limit changes.

    The request is refused and repeated, so the token is granted by a policy that the manager has not observed.
    """
    limit(scene, per_s=1 / 60, burst=1)
    mailer = Mailer(scene, "mailer")
    scene.has(lambda alice: alice.enqueue("mail"))
    visit = mailer.visit()
    asks = visit.runs_until_commit(of="limits")
    limit(scene, per_s=1 / 120)
    asks.goes_its_way()
    assert visit.refused == [NOT_COMMITTED]
    mailer.serves()
    return mailer


def test_a_token_by_a_policy_that_its_manager_learns_with_it_starts_a_mail() -> None:
    scene = Scene()
    assert len(a_limit_changes_while_a_manager_asks_for_tokens(scene).running) == 1
    scene.check_stored()


def test_without_a_comparison_of_policies_the_token_is_lost_and_the_mail_waits_for_the_next() -> None:
    scene = Scene()
    with planted("a manager forgets a grant as it learns of its policy"):
        mailer = a_limit_changes_while_a_manager_asks_for_tokens(scene)
        scene.pass_us(60 * SECOND)
        mailer.serves()
        assert mailer.running == []


# --- A round while a visit is under way ---


def a_round_while_a_visit_is_under_way(scene: Scene) -> int:
    """One mail may run at once. The limit comes while three run: the store counts all of them until both managers ask.

    The mails end. The first manager takes the next one by its slot. Before it gets the answer, it asks to keep the
    slot. The store still counts what the second manager has run. Return how many mails run at once.
    """
    first, second = Mailer(scene, "first"), Mailer(scene, "second")
    for mailer, count in ((first, 2), (second, 1)):
        for _ in range(count):
            scene.has(lambda alice: alice.enqueue("mail"))
        mailer.serves()
        assert len(mailer.running) == count
    limit(scene, max_running=1)
    scene.has(lambda alice: alice.enqueue("mail"))
    for mailer in (first, second):
        mailer.serves()  # It observes the limit, and meets the mail.
        scene.pass_us(ROUND_US)  # What it runs counts.
    visit = first.visit()
    for mailer in (first, second):
        mailer.ends_all()
    first.asks_its_worker()
    taking = visit.runs_until_commit(of=visit.host.name)
    taking.arrives()
    scene.pass_us(2 * ROUND_US)
    scene.has(lambda alice: alice.enqueue("mail"))
    for _ in range(3):
        second.serves()
    taking.answer_arrives()
    visit.runs()
    assert len(first.running) == 1
    return len(first.running) + len(second.running)


def test_a_manager_keeps_the_slot_by_which_a_visit_under_way_takes_a_mail() -> None:
    scene = Scene()
    assert a_round_while_a_visit_is_under_way(scene) == 1
    scene.check_stored()


def test_without_the_count_of_what_a_visit_may_have_taken_its_slot_is_given_away() -> None:
    with planted("a manager does not count what a call under way may have taken"):
        assert a_round_while_a_visit_is_under_way(Scene()) == 2
