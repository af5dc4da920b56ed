"""A policy that an operator sets is in force within a second on a fleet of Ray actors, and outlives every process."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fairlead import App, Config, new_item
from tests.acceptance.fleets import config, consumer, eventually
from tests.acceptance.loads import Load, lines_of, most_at_once, runs_of
from tests.acceptance.shop import payload

pytestmark = pytest.mark.usefixtures("cluster")

IN_FORCE_S = 1.0


@pytest.fixture
def chosen(tmp_path: Path) -> Config:
    return config(tmp_path)


class Noted:
    """Items of kind `noted`, for tenants in turn, that have been enqueued; and when each began."""

    def __init__(self, app: App, path: Path) -> None:
        self.path = path
        self.users: dict[str, str] = {}  # by item
        self._app = app

    def enqueue(self, user: str, count: int, *, takes_ms: int = 2) -> None:
        items = [new_item("noted", payload(0, path=str(self.path), takes_ms=takes_ms))] * count
        for made in self._app.tenant("shop", user).enqueue_many(items):
            self.users[made.item_id.hex()] = user

    def begun(self, user: str) -> list[int]:
        """When items of a user began, nanoseconds of the machine's monotonic clock."""
        notes = [line.split() for line in lines_of(self.path)]
        return [int(time_ns) for what, item, time_ns, _ in notes if what == "begin" and self.users.get(item) == user]

    def alices_per_bob(self, since_ns: int, *, of: int, waiting: int) -> float:
        """How many items of Alice's begin for each of Bob's, among the first `of` from a time on.

        Both have at least `waiting` items waiting all the while, however fast the machine is.
        """

        def begun() -> list[tuple[int, str]]:
            times = [(time_ns, user) for user in ("alice", "bob") for time_ns in self.begun(user) if time_ns > since_ns]
            return sorted(times)[:of]

        def begun_of_full_queues() -> bool:
            for user in ("alice", "bob"):
                left = list(self.users.values()).count(user) - len(self.begun(user))
                assert left > 0, f"{user} has none left, so the ratio tells nothing"
                if left < waiting:
                    self.enqueue(user, waiting, takes_ms=20)
            return len(begun()) == of

        eventually(begun_of_full_queues)
        alices = sum(user == "alice" for _, user in begun())
        return alices / max(1, of - alices)

    @property
    def ended(self) -> int:
        """How many have ended."""
        return self.path.read_text().count("end ") if self.path.exists() else 0


@pytest.mark.parametrize(
    ("pause", "resume"),
    [
        (
            lambda app: app.control.pause_tenant("shop", "alice"),
            lambda app: app.control.resume_tenant("shop", "alice"),
        ),
        (lambda app: app.control.pause_kind("noted"), lambda app: app.control.resume_kind("noted")),
        (lambda app: app.control.pause_shard("main"), lambda app: app.control.resume_shard("main")),
    ],
    ids=["tenant", "kind", "shard"],
)
def test_a_pause_and_its_end_are_in_force_within_a_second(
    app: App, chosen: Config, tmp_path: Path, pause: Callable[[App], None], resume: Callable[[App], None]
) -> None:
    items = Noted(app, tmp_path / "notes")
    with consumer(chosen):
        items.enqueue("alice", 400, takes_ms=20)
        eventually(lambda: items.begun("alice"))
        pause(app)
        paused_ns = time.monotonic_ns()
        eventually(lambda: time.monotonic_ns() - max(items.begun("alice")) > 2 * IN_FORCE_S * 1e9)
        assert len(items.begun("alice")) < 400, "it was paused too late to tell"
        assert max(items.begun("alice")) - paused_ns < IN_FORCE_S * 1e9
        before = len(items.begun("alice"))
        resumed_ns = time.monotonic_ns()
        resume(app)
        eventually(lambda: len(items.begun("alice")) > before)
        assert sorted(items.begun("alice"))[before] - resumed_ns < IN_FORCE_S * 1e9
        eventually(lambda: len(items.begun("alice")) == 400)


def test_a_pause_outlives_the_fleet(app: App, chosen: Config, tmp_path: Path) -> None:
    items = Noted(app, tmp_path / "notes")
    app.control.pause_tenant("shop", "alice")
    for _ in range(2):
        with consumer(chosen):
            items.enqueue("alice", 1)
            items.enqueue("bob", 1)
            bobs = len(items.begun("bob"))
            eventually(lambda bobs=bobs: len(items.begun("bob")) > bobs)  # type: ignore[misc]
    assert items.begun("alice") == []


def test_an_item_that_runs_when_its_tenant_is_paused_runs_to_its_end(app: App, chosen: Config, tmp_path: Path) -> None:
    items = Noted(app, tmp_path / "notes")
    with consumer(chosen):
        items.enqueue("alice", 1, takes_ms=1_000)
        eventually(lambda: items.begun("alice"))
        app.control.pause_tenant("shop", "alice")
        eventually(lambda: app.tenant("shop", "alice").count() == {})
    ((run,),) = runs_of(tmp_path / "notes").values()
    assert run[1] - run[0] >= 1e9


def test_a_weight_holds_at_once_for_waiting_items(app: App, chosen: Config, tmp_path: Path) -> None:
    """Ten tenants of four hundred items; one of them is worth four from the moment that somebody says so."""
    items = Noted(app, tmp_path / "notes")
    users = [f"user {number}" for number in range(10)]
    for user in users:
        items.enqueue(user, 400, takes_ms=5)
    app.control.set_weight("shop", "user 0", weight=4)
    with consumer(chosen):
        eventually(lambda: len(items.begun("user 0")) >= 300)
    since_ns, *rest = sorted(items.begun("user 0"))[50:300]
    begun = [sum(since_ns <= time_ns < rest[-1] for time_ns in items.begun(user)) for user in users]
    assert 3 < begun[0] / (sum(begun[1:]) / 9) < 5


def test_a_weight_that_is_changed_while_two_tenants_are_served_holds_within_a_second(
    app: App, chosen: Config, tmp_path: Path
) -> None:
    """Both always have items waiting; each change is told from what begins a second later."""
    items = Noted(app, tmp_path / "notes")
    with consumer(chosen):
        for user in ("alice", "bob"):
            items.enqueue(user, 1_500, takes_ms=20)
        eventually(lambda: items.begun("alice") and items.begun("bob"))
        for weight, fewest, most in ((1, 0.6, 1.6), (4, 2.5, 6.5), (1, 0.6, 1.6)):
            app.control.set_weight("shop", "alice", weight=weight)
            in_force_ns = time.monotonic_ns() + int(IN_FORCE_S * 1e9)
            assert fewest < items.alices_per_bob(in_force_ns, of=250, waiting=1_000) < most, f"of weight {weight}"


def test_no_more_items_of_a_kind_run_at_once_in_two_consumers_than_its_limit(
    app: App, chosen: Config, tmp_path: Path
) -> None:
    items = Noted(app, tmp_path / "notes")
    app.control.limit_kind("noted", max_running=3)
    for number in range(10):
        items.enqueue(f"user {number}", 6, takes_ms=50)
    with consumer(chosen), consumer(chosen), Load(app, per_s=50):
        eventually(lambda: items.ended == 60)
    assert most_at_once(runs_of(items.path)) == 3


def test_no_more_of_a_kind_start_in_a_second_than_its_rate(app: App, chosen: Config, tmp_path: Path) -> None:
    """Counted from before the first can start: of the time of a start nobody knows how long after its token it was."""
    items = Noted(app, tmp_path / "notes")
    with consumer(chosen):
        items.enqueue("alice", 1)
        eventually(lambda: items.begun("alice"))
        app.control.limit_kind("noted", per_s=20, burst=5)
        began_ns = time.monotonic_ns()
        for number in range(10):
            items.enqueue(f"user {number}", 10)
        eventually(lambda: sum(len(items.begun(f"user {number}")) for number in range(10)) == 100)
    last_ns = max(time_ns for number in range(10) for time_ns in items.begun(f"user {number}"))
    took_s = (last_ns - began_ns) / 1e9
    assert took_s >= (100 - 5) / 20
    assert took_s < 8, "and not many fewer either"
