"""Moves of tenants as an application begins, watches and ends them. `tests/zones/moving` has their stories."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlead import (
    App,
    BadArgument,
    Cause,
    MoveFailed,
    MovePending,
    MoveRefused,
    MoveUnderWay,
    MoveView,
    ShardRefused,
    StoreUnavailable,
    TenantBusy,
    TenantMoved,
    UnknownShard,
)
from fairlead.audit_log import read_log
from fairlead.testing import ManualClock, drain
from fairlead.zones.engines.api.errors import StoreFull
from fairlead.zones.keyspace import KEY_FORMAT, META_KEY, TenantKeys, range_begin, range_end
from fairlead.zones.layout import DEFAULT_ZONE, Tenant, local_tenant
from fairlead.zones.maintenance.integrity import check_integrity
from fairlead.zones.moving import destination
from fairlead.zones.moving.errors import MoveHeldUp
from fairlead.zones.moving.move_record import MOVE_KIND, move_key
from fairlead.zones.moving.mover import Mover
from fairlead.zones.queue.dead_letter_search import DeadLetterFilter
from fairlead.zones.queue.dead_letters import move_to_dead_letters
from fairlead.zones.records import (
    FORMAT,
    ItemRecord,
    Move,
    MovePhase,
    OwnerRecord,
    PlacementRecord,
    ShardRecord,
    decode,
    encode,
)
from fairlead.zones.transaction_runner import Attempt
from tests.fairlead.shell import ROOT
from tests.zones.faults import Fault, FaultyDatabase

ALICE = "shop/alice"
USERS = [f"shop/user {number}" for number in range(20)]
ORDERS = {("order", number): b"paid" for number in range(3)}


def alices_app(us2: str = "memory:") -> App:
    """Return an application on two shards. Alice has orders and an item; she lives on `main`."""
    app = App({"main": "memory:", "us2": us2}, clock=ManualClock())
    app.handler("mail")(lambda job: None)
    app.tenant(ALICE).transact(lambda tr: [tr.set(key, value) for key, value in ORDERS.items()])
    app.tenant(ALICE).enqueue("mail", delay=3_600)
    assert app.tenant(ALICE).shard.name == "main"
    return app


@pytest.fixture
def app() -> Iterator[App]:
    made = alices_app()
    yield made
    made.close()


@pytest.fixture
def grown(tmp_path: Path) -> Iterator[App]:
    """An application that began with one shard, got twenty tenants, and then a second shard."""
    urls = {name: f"embedded:{tmp_path / name}" for name in ("main", "us2")}
    first = App({"main": urls["main"]})
    for user in USERS:
        first.tenant(user).transact(lambda tr: tr.set(("order",), b"paid"))
    first.close()
    made = App(urls, clock=ManualClock())
    yield made
    made.close()


def home(app: App, tenant: str = ALICE) -> str:
    return app.tenant(tenant).find().name


def orders(app: App) -> dict[Any, bytes]:
    return app.tenant(ALICE).transact(lambda tr: dict(tr.get_range()))


def view_of(app: App) -> MoveView:
    (view,) = app.moves()
    return view


class BetweenCommits(FaultyDatabase):
    """A store before whose commits something happens; not before those of what happens."""

    def __init__(self, app: App, name: str, happens: Callable[[], object]) -> None:
        super().__init__(app.shards[name].db)
        app.shards[name].db = self
        self.happens: Callable[[], object] | None = happens

    def commit(self, tr: Any) -> None:
        happens, self.happens = self.happens, None
        if happens is not None:
            happens()
        super().commit(tr)
        self.happens = happens


def test_a_tenant_moves_with_its_data_and_its_queue(app: App) -> None:
    move = app.move(ALICE, to="us2")
    drain(app)
    view = move.result(timeout=0)
    assert (view.tenant, view.source, view.destination) == (Tenant("shop", "alice"), "main", "us2")
    assert (view.state, view.fraction, view.now, view.cancel_requested) == ("moved", 1.0, "moved", False)
    assert view.copied_rows > len(ORDERS)
    assert view.copied_bytes > 0
    assert (home(app), orders(app), app.tenant(ALICE).count()) == ("us2", ORDERS, {"mail": 1})
    assert app.moves() == [view]


def test_a_snapshot_moves_with_its_tenant(app: App) -> None:
    alice = app.tenant(ALICE)
    snapshot = alice.snapshot()
    alice.transact(lambda tr: tr.set(("order", 1), b"refunded"))
    app.move(ALICE, to="us2")
    drain(app)
    assert (home(app), alice.snapshots()) == ("us2", [snapshot])
    with alice.at(snapshot) as before:
        assert before.get(("order", 1)) == b"paid"
    assert orders(app)["order", 1] == b"refunded"


def test_a_check_knows_the_records_of_moves_and_names_damaged_ones(app: App) -> None:
    """Before, it counted them as records that this version does not know."""
    app.move(ALICE, to="us2")
    drain(app)
    main = app.shards["main"]
    report = check_integrity(main)
    assert (report.findings, report.unknown) == ([], 0)
    key = move_key(TenantKeys("shop", "alice"))
    main.transact(lambda attempt: attempt.tr.set(key, b"\xff"))
    assert [finding.key for finding in check_integrity(main).findings] == [key]
    assert app.moves() == []
    check_integrity(main, quarantine=True)
    assert check_integrity(main).findings == []


def test_a_coroutine_waits_for_a_move(app: App) -> None:
    move = app.move(ALICE, to="us2")
    with pytest.raises(MovePending):
        asyncio.run(move.aresult(timeout=0))
    drain(app)
    assert asyncio.run(move.aresult()).state == "moved"


def test_a_move_without_a_fleet_says_that_nobody_carries_it_out(app: App) -> None:
    move = app.move(ALICE, to="us2")
    with pytest.raises(MovePending) as pending:
        move.result(timeout=1)
    said = "has not begun; its shard has no live consumer; start one with fairlead run"
    assert (pending.value.fields["to"], pending.value.fields["now"]) == ("us2", said)
    assert (view_of(app).now, view_of(app).state, view_of(app).ended) == (said, "under way", None)


@pytest.mark.parametrize("meanwhile", ["nothing", "moved", "cancelled", "lost"])
def test_a_move_whose_begin_has_an_unknown_result_is_begun_once(app: App, meanwhile: str) -> None:
    """Before, a cancelled move began again, and one that had ended already was refused."""
    ended: dict[str, Callable[[], object]] = {
        "moved": lambda: drain(app),
        "cancelled": lambda: (app.cancel_move(ALICE), drain(app)),
    }
    main = app.shards["main"]
    main.db = faulty = FaultyDatabase(main.db)
    faulty.faults.append(Fault(applied=meanwhile != "lost", then=ended.get(meanwhile, lambda: None)))
    move = app.move(ALICE, to="us2")
    expected = meanwhile if meanwhile in ended else "under way"
    assert move.progress().state == expected
    assert sum(entry.action == "move" for entry in read_log(app.shards, entries_max=9)) == 1
    drain(app)
    assert (view_of(app).id, home(app)) == (move.id, "main" if meanwhile == "cancelled" else "us2")


def test_the_audit_log_names_who_began_and_who_cancelled_a_move(app: App) -> None:
    app.operator = app.operator._replace(name="mia", through="command line")
    app.move(ALICE, to="us2").cancel()
    found = {
        each.action: (each.target, each.audit_entry.by, each.shards) for each in read_log(app.shards, entries_max=9)
    }
    target = "tenant shop/alice, destination us2"
    assert found == {"move": (target, "mia", ("main",)), "cancel move": (target, "mia", ("main",))}


# --- Refusals ---


def test_a_tenant_that_does_not_exist_is_refused(app: App) -> None:
    for ask in (app.move, app.plan_move):
        with pytest.raises(MoveRefused, match="there is no such tenant"):
            ask("shop/nobody", to="us2")
    assert app.moves() == []


@pytest.mark.parametrize("to", ["main", "us2"])
def test_a_plan_to_move_a_tenant_that_does_not_exist_to_its_first_home_says_so(app: App, to: str) -> None:
    with pytest.raises(MoveRefused, match="there is no such tenant"):
        app.plan_move("shop/nobody", to=to)


def test_a_shard_that_does_not_exist_is_refused_and_the_others_are_named(app: App) -> None:
    for ask in (app.move, app.plan_move):
        with pytest.raises(UnknownShard) as refused:
            ask(ALICE, to="us3")
        assert refused.value.fields == {"shard": "us3", "known": ["main", "us2"]}


def test_a_tenant_is_not_moved_to_where_it_lives(app: App) -> None:
    for ask in (app.move, app.plan_move):
        with pytest.raises(MoveRefused, match="it lives on main already"):
            ask(ALICE, to="main")


def test_local_items_are_not_moved(app: App) -> None:
    app.enqueue_local("mail")
    for ask in (app.move, app.plan_move):
        with pytest.raises(MoveRefused, match="local items stay on their shard"):
            ask(app.local("mail"), to="us2")
        with pytest.raises(BadArgument, match="local and has none"):
            ask(app.local("mail").tenant, to="us2")


@pytest.mark.parametrize("rate", [0, -1, 1e6, float("nan"), True, "fast"])
def test_a_rate_out_of_range_is_refused(app: App, rate: Any) -> None:
    with pytest.raises(BadArgument, match=r"megabytes per second, 0.01 to 10,000"):
        app.move(ALICE, to="us2", mb_per_s=rate)


def test_a_second_move_is_refused_and_told_how_far_the_first_one_is(app: App) -> None:
    seen: list[str] = []

    def ask_again() -> None:
        if view_of(app).stage in ("copying", "arriving"):
            with pytest.raises(MoveUnderWay) as refused:
                app.move(ALICE, to="main")
            seen.append(str(refused.value))

    BetweenCommits(app, "us2", ask_again)
    app.move(ALICE, to="us2")
    drain(app)
    assert view_of(app).state == "moved"
    assert any("to='us2', now='copying; 0%, 0 bytes of " in text for text in seen), seen
    assert any("to='us2', now='arriving; 100%" in text for text in seen), "it has not fully arrived"


# --- What a destination cannot take ---


def test_a_key_that_is_too_long_for_the_destination_is_refused_before_anything_is_copied(tmp_path: Path) -> None:
    app = alices_app(us2=f"embedded:{tmp_path / 'us2'}")
    app.tenant(ALICE).transact(lambda tr: tr.set(("k" * 600,), b"v"))
    with pytest.raises(MoveRefused, match="the destination stores keys of up to 511 bytes, and the tenant has one of"):
        app.plan_move(ALICE, to="us2")
    move = app.move(ALICE, to="us2")
    drain(app)
    with pytest.raises(MoveFailed, match="the destination stores keys of up to 511 bytes"):
        move.result(timeout=0)
    assert (view_of(app).copied_bytes, home(app), len(orders(app))) == (0, "main", len(ORDERS) + 1)
    app.close()


def test_a_key_that_outgrows_the_destination_while_the_tenant_moves_ends_the_move(tmp_path: Path) -> None:
    app = alices_app(us2=f"embedded:{tmp_path / 'us2'}")
    app.move(ALICE, to="us2")
    written: list[int] = []

    def write() -> None:
        if view_of(app).stage == "copying what has changed" and not written:
            written.append(1)
            app.tenant(ALICE).transact(lambda tr: tr.set(("k" * 600,), b"v"))

    BetweenCommits(app, "main", write)
    drain(app)
    assert view_of(app).state == "failed"
    assert "the destination does not store what is so long" in view_of(app).error
    assert (home(app), len(orders(app))) == ("main", len(ORDERS) + 1)
    app.close()


def test_a_destination_of_a_newer_format_is_refused_and_a_move_there_can_be_cancelled(tmp_path: Path) -> None:
    urls = {"main": f"embedded:{tmp_path / 'main'}", "us2": f"embedded:{tmp_path / 'us2'}"}
    app = App(urls, clock=ManualClock())
    app.tenant(ALICE).transact(lambda tr: tr.set(("order", 0), b"paid"))
    shard = app.shards["us2"]
    newer = ShardRecord(shard.layout.shard_id, 16, 0, KEY_FORMAT + 1)
    app.move(ALICE, to="us2")
    shard.transact(lambda attempt: attempt.tr.set(META_KEY, encode(newer)))
    app.close()
    with pytest.raises(ShardRefused, match="made by a newer version of fairlead"):
        app.move(ALICE, to="us2")
    assert app.cancel_move(ALICE), "the source is enough to ask"
    app.close()


def test_a_plan_tells_of_smaller_limits_and_of_a_paused_destination(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    smaller = app.shards["us2"].db.limits.__class__(
        key_bytes_max=200, value_bytes_max=10**4, transaction_bytes_max=10**6
    )
    monkeypatch.setattr(app.shards["us2"].db, "limits", smaller)
    app.control.pause_shard("us2")
    plan = app.plan_move(ALICE, to="us2")
    assert [warning.partition(":")[0] for warning in plan.warnings] == [
        "the destination allows smaller keys",
        "the destination allows smaller values",
        "the destination allows smaller transactions",
        "the destination is paused",
    ]
    assert plan.rows > len(ORDERS)
    assert plan.seconds(2.0) == plan.bytes / 2_000_000
    assert app.moves() == []


def test_a_destination_that_is_full_ends_the_move_and_nothing_is_lost(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = []

    def full(*_: object) -> None:
        refused.append(1)
        raise StoreFull("us2")

    monkeypatch.setattr(destination, "write_chunk", full)
    move = app.move(ALICE, to="us2")
    drain(app)
    with pytest.raises(MoveFailed, match=r"the destination is full: .*Free some space"):
        move.result(timeout=0)
    assert refused == [1]
    assert (home(app), orders(app), app.tenant(ALICE).count()) == ("main", ORDERS, {"mail": 1})
    monkeypatch.undo()
    move = app.move(ALICE, to="us2")
    drain(app)
    assert move.result(timeout=0).state == "moved"


FULL = """
import resource, sys
from fairlead import App
from fairlead.testing import ManualClock, drain
app = App({"main": "embedded:main", "us2": "embedded:us2"}, clock=ManualClock())
for user, batches in (("alice", 10), ("bob", 40)):
    for batch in range(batches):
        rows = [(("page", batch, number), bytes(10_000)) for number in range(10)]
        app.tenant("shop", user).transact(lambda tr: [tr.set(*row) for row in rows])
assert [app.tenant("shop", user).shard.name for user in ("alice", "bob")] == ["main", "us2"]
app.close()
with open("us2/data.mdb", "rb") as file:
    size = file.seek(0, 2)
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 300_000, resource.RLIM_INFINITY))
move = app.move("shop/alice", to="us2")
drain(app)
print(move.progress().now, app.tenant("shop/alice").find().name)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
move = app.move("shop/alice", to="us2")
drain(app)
print(move.progress().now, app.tenant("shop/alice").find().name)
print(len(app.tenant("shop/alice").transact(lambda tr: list(tr.get_range()))))
"""


def test_a_disk_that_is_full_ends_the_move_and_the_next_one_succeeds_when_there_is_space(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", FULL], cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    full, moved, rows = ended.stdout.splitlines()
    assert full.startswith("failed: the destination is full: store unavailable: the disk is full")
    assert full.endswith(" main")
    assert (moved, rows) == ("moved us2", "100")


def test_a_destination_that_takes_no_writes_holds_up_the_move_which_says_so_and_goes_on_later(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise StoreUnavailable("the file system is read-only", remedy="Mount it writable.")

    with monkeypatch.context() as context:
        context.setattr(destination, "prepare", refuse)
        app.move(ALICE, to="us2")
        drain(app, raise_errors=False)
        assert "the file system is read-only" in view_of(app).now
        assert view_of(app).state == "under way"
        app.tenant(ALICE).transact(lambda tr: tr.set(("order", 9), b"open"))
    drain(app, within=60)
    assert (view_of(app).state, len(orders(app))) == ("moved", len(ORDERS) + 1)


# --- Cancelling ---


def test_a_move_is_cancelled_before_it_has_begun(app: App) -> None:
    move = app.move(ALICE, to="us2")
    assert move.cancel()
    assert view_of(app).now.startswith("being cancelled; has not begun")
    drain(app)
    with pytest.raises(MoveFailed, match="it was cancelled"):
        move.result(timeout=0)
    assert (view_of(app).state, view_of(app).now) == ("cancelled", "cancelled: it was cancelled")
    assert not move.cancel()
    assert not app.cancel_move(ALICE)


@pytest.mark.parametrize("shard", ["main", "us2"])
def test_a_move_is_cancelled_at_each_of_its_commits(shard: str) -> None:
    """Whoever is told that the move is taken back finds it taken back, but in the moment of its decision."""
    seen = set()
    for number in range(60):
        app, asked, left = alices_app(), list[bool](), iter(range(number, -1, -1))

        def cancel(app: App = app, asked: list[bool] = asked, left: Iterator[int] = left) -> None:
            if next(left, None) == 0:
                asked.append(app.cancel_move(ALICE))

        move = app.move(ALICE, to="us2")
        BetweenCommits(app, shard, cancel)
        drain(app)
        view = move.progress()
        assert home(app) == ("us2" if view.state == "moved" else "main")
        assert (orders(app), app.tenant(ALICE).count()) == (ORDERS, {"mail": 1})
        seen.add((view.state, *asked))
        app.close()
        if not asked:
            break
    else:
        pytest.fail("a move has more commits than the test asks at")
    assert (
        {("cancelled", True), ("moved", False), ("moved",)}
        <= seen
        <= {
            ("cancelled", True),
            ("moved", False),
            ("moved", True),
            ("moved",),
        }
    )


def test_a_slow_move_hears_of_its_cancellation_within_a_second(app: App) -> None:
    """Before, it slept until its rate allowed the next chunk, at the lowest rate for half a minute."""
    app.tenant(ALICE).transact(lambda tr: [tr.set(("page", number), bytes(10_000)) for number in range(60)])
    cancelled_s: list[float] = []

    def cancel() -> None:
        if view_of(app).stage == "copying" and not cancelled_s and app.cancel_move(ALICE):
            cancelled_s.append(app.clock.now_us() / 1e6)

    app.move(ALICE, to="us2", mb_per_s=0.01)
    BetweenCommits(app, "us2", cancel)
    drain(app)
    assert view_of(app).state == "cancelled"
    assert (view_of(app).ended or 0) - cancelled_s[0] <= 1


def test_a_move_whose_record_was_damaged_is_taken_back(app: App) -> None:
    """Before, its item completed, and the tenant moved for ever: no command knew of the move."""
    app.move(ALICE, to="us2")
    key = move_key(TenantKeys("shop", "alice"))
    app.shards["main"].transact(lambda attempt: attempt.tr.set(key, b"\xff"))
    drain(app)
    app.move(ALICE, to="us2")
    drain(app)
    assert (home(app), orders(app), view_of(app).state) == ("us2", ORDERS, "moved")


def give_up(app: App) -> bytes:
    """Let the item of the only move become a dead letter, and return its id."""
    shard, item_id = app.shards["main"], view_of(app).id
    location = shard.layout.location(local_tenant(MOVE_KIND), DEFAULT_ZONE)

    def body(attempt: Attempt) -> None:
        record = decode(ItemRecord, attempt.tr.get(location.keys.item(item_id)).value or b"")
        assert record is not None
        move_to_dead_letters(
            attempt.tr, location, item_id, record, reason="poison", error="died", traceback="", now_us=attempt.now_us
        )

    shard.transact(body)
    return item_id


DELETIONS: dict[str, Callable[[App, bytes], object]] = {
    "discard": lambda app, item_id: app.local(MOVE_KIND, shard="main").discard_dead_letter(item_id),
    "discard all": lambda app, _: app.discard_dead_letters(DeadLetterFilter(kind=MOVE_KIND)),
    "cancel": lambda app, item_id: app.local(MOVE_KIND, shard="main").cancel(item_id),
    "force cancel": lambda app, item_id: app.local(MOVE_KIND, shard="main").cancel(item_id, force=True),
}


@pytest.mark.parametrize(
    ("delete", "is_dead_letter"), [*((each, True) for each in DELETIONS), ("cancel", False), ("force cancel", False)]
)
def test_whoever_deletes_the_item_of_a_move_takes_the_move_back(app: App, delete: str, is_dead_letter: bool) -> None:
    """Before, the tenant moved for ever: nobody could end the move, nor begin another one."""
    app.move(ALICE, to="us2")
    item_id = give_up(app) if is_dead_letter else view_of(app).id
    DELETIONS[delete](app, item_id)
    assert view_of(app).now.startswith("being cancelled; has not begun")
    assert app.local(MOVE_KIND, shard="main").dead_letters() == []
    drain(app)
    assert (view_of(app).state, home(app), app.local(MOVE_KIND, shard="main").count()) == ("cancelled", "main", {})


def test_a_move_whose_item_is_a_dead_letter_says_so_and_can_be_cancelled(app: App) -> None:
    app.move(ALICE, to="us2")
    give_up(app)
    said = "it failed for good: died; fairlead dead-letters retry runs it again;"
    assert f"{said} fairlead move shop/alice --cancel takes the move back" in view_of(app).now
    assert app.cancel_move(ALICE)
    drain(app)
    assert (view_of(app).state, home(app)) == ("cancelled", "main")


def test_the_dead_letter_of_an_ended_move_is_discarded(app: App) -> None:
    app.move(ALICE, to="us2")
    item_id = give_up(app)
    key = move_key(TenantKeys("shop", "alice"))
    app.shards["main"].transact(lambda attempt: attempt.tr.clear(key))
    app.local(MOVE_KIND, shard="main").discard_dead_letter(item_id)
    assert app.local(MOVE_KIND, shard="main").count() == {}


@pytest.mark.parametrize("how", ["check", "cancel"])
def test_a_move_whose_damaged_item_was_set_aside_goes_on_or_is_cancelled(app: App, how: str) -> None:
    """Before, `fairlead move --cancel` had no effect, because no item carried the move out."""
    app.move(ALICE, to="us2")
    main = app.shards["main"]
    key = main.layout.location(local_tenant(MOVE_KIND), DEFAULT_ZONE).keys.item(view_of(app).id)
    if how == "check":
        main.transact(lambda attempt: attempt.tr.set(key, b"\xff"))
        check_integrity(main, quarantine=True)
        assert check_integrity(main).findings == []
    else:
        main.transact(lambda attempt: attempt.tr.clear(key))
        assert "no item carries it out; fairlead check --repair makes one, fairlead move shop/alice" in view_of(app).now
        assert app.cancel_move(ALICE)
        check_integrity(main, repair=True)  # The index names the lost item twice.
    drain(app)
    assert view_of(app).state == {"check": "moved", "cancel": "cancelled"}[how]


def test_a_move_that_a_newer_version_carries_out_is_not_denied_to_who_cancels_it(app: App) -> None:
    """Before, the answer was that no move is under way."""
    app.move(ALICE, to="us2")
    newer = bytes([FORMAT + 1]) + b"what it means only they know"
    app.shards["main"].transact(lambda attempt: attempt.tr.set(move_key(TenantKeys("shop", "alice")), newer))
    with pytest.raises(MoveHeldUp, match="upgrade this program"):
        app.cancel_move(ALICE)


def test_a_move_whose_damaged_record_and_item_were_set_aside_is_ended(app: App) -> None:
    """Before, the tenant moved for ever: each later move was refused, and no check said so."""
    app.move(ALICE, to="us2")
    main = app.shards["main"]
    item_key = main.layout.location(local_tenant(MOVE_KIND), DEFAULT_ZONE).keys.item(view_of(app).id)
    for key in (item_key, move_key(TenantKeys("shop", "alice"))):
        main.transact(lambda attempt: attempt.tr.set(key, b"\xff"))  # noqa: B023
    check_integrity(main, quarantine=True)
    assert check_integrity(main).findings == []
    drain(app)
    assert home(app) == "main"
    app.move(ALICE, to="us2")
    drain(app)
    assert home(app) == "us2"


def rows_of_alice(app: App, shard: str) -> list[bytes]:
    prefix = TenantKeys("shop", "alice").prefix
    return app.shards[shard].transact(
        lambda attempt: [row.key for row in attempt.tr.get_range(range_begin(prefix), range_end(prefix))]
    )


@pytest.mark.parametrize("dies_before", ["_clear_closed", "_clear"])
def test_copies_of_a_cancelled_move_are_cleared_although_another_move_has_begun(
    dies_before: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, they stayed for ever: the record of the second move had taken the place of the first one's."""
    app = App({"main": "memory:", "us2": "memory:", "us3": "memory:"}, clock=ManualClock())
    alice = app.tenant(ALICE)
    alice.transact(lambda tr: [tr.set(key, value) for key, value in ORDERS.items()])
    at, first, second = (alice.shard.name, *(name for name in app.shards if name != alice.shard.name))
    original, died = getattr(Mover, dies_before), list[int]()

    def die(self: Mover, *args: Any, **options: Any) -> None:
        if view_of(app).state == "cancelled":
            died.append(1)
            app.move(ALICE, to=second)
            monkeypatch.undo()
            raise StoreUnavailable("the process died", remedy="Start it.")
        original(self, *args, **options)

    monkeypatch.setattr(Mover, dies_before, die)
    move = app.move(ALICE, to=first)
    BetweenCommits(app, first, lambda: view_of(app).stage == "copying" and move.cancel())
    drain(app, raise_errors=False, within=60)
    assert (died, home(app), view_of(app).state) == ([1], second, "moved")
    assert rows_of_alice(app, first) == []
    assert orders(app) == ORDERS
    assert [check_integrity(shard).findings for shard in app.shards.values()] == [[], [], []]
    assert app.local(MOVE_KIND, shard=at).count() == {}
    app.close()


# --- Transactions that have used .raw ---


def key_of_alice() -> bytes:
    return TenantKeys(*Tenant("shop", "alice")).data + b"\x15\x07"


def test_what_a_raw_transaction_writes_while_its_tenant_moves_is_copied(app: App) -> None:
    written: list[int] = []

    def write() -> None:
        if view_of(app).stage == "copying what has changed" and not written:
            written.append(1)
            app.tenant(ALICE).transact(lambda tr: tr.raw.set(key_of_alice(), b"raw"))

    app.move(ALICE, to="us2")
    BetweenCommits(app, "main", write)
    drain(app)
    assert written
    assert home(app) == "us2"
    assert app.tenant(ALICE).transact(lambda tr: tr.raw.get(key_of_alice()).value) == b"raw"


def test_a_raw_transaction_whose_tenant_has_moved_meanwhile_is_told_so(app: App) -> None:
    bodies = []

    def body(tr: Any) -> None:
        bodies.append(1)
        tr.raw.get(key_of_alice()).wait()
        if len(bodies) == 1:
            app.move(ALICE, to="us2")
            drain(app)
        tr.set(("order", 9), b"open")

    with pytest.raises(TenantMoved, match=r"used \.raw"):
        app.tenant(ALICE).transact(body)
    assert orders(app) == ORDERS


# --- Why an item of such a tenant does not run ---


def item_of(app: App) -> bytes:
    (item,) = app.tenant(ALICE).peek()
    return item.id


def test_an_explanation_says_that_the_tenant_moves_and_how_far_it_is(app: App) -> None:
    item_id, seen = item_of(app), set()

    def explain() -> None:
        seen.add(str(app.tenant(ALICE).explain(item_id).details.get("tenant_moves")))

    app.move(ALICE, to="us2")
    explain()
    assert seen == {"to shard us2: has not begun; its items run meanwhile"}
    BetweenCommits(app, "main", explain)
    drain(app)
    assert "to shard us2: measuring; its items run meanwhile" in seen
    assert any(text.startswith("to shard us2: copying what has changed; 100%, ") for text in seen)
    assert "it has moved to this shard, which still lists its queues; its items run meanwhile" in seen
    said = app.tenant(ALICE).explain(item_id)
    assert (said.cause, said.shard, "tenant_moves" in said.details) == (Cause.DELAYED, "us2", False)


def test_an_explanation_says_that_all_wait_for_a_move_which_cannot_end(app: App) -> None:
    item_id, main = item_of(app), app.shards["main"]
    lost = Move(MovePhase.FROZEN, b"a shard far away", b"m" * 16)
    frozen = encode(OwnerRecord(1, main.layout.shard_id, move=lost))
    main.transact(lambda attempt: attempt.tr.set(TenantKeys("shop", "alice").owner, frozen))
    said = app.tenant(ALICE).explain(item_id)
    assert (said.cause, said.sentence) == (
        Cause.TENANT_LOCKED,
        "all transactions on its tenant wait for the last step of its move:"
        " no shard of this process's configuration has the id of the shard to which the tenant moves",
    )
    with pytest.raises(TenantBusy):
        app.tenant(ALICE).transact(lambda tr: tr.raw.get(key_of_alice()).value)


# --- Processes with the configuration from before a shard was added ---


def test_a_process_that_does_not_know_the_new_shard_serves_those_who_have_not_moved(grown: App) -> None:
    (bob, _), *_ = grown.rebalance(to=["us2"], tenants_max=1).moves
    drain(grown)
    old = App({"main": grown.shards.urls["main"]}, clock=grown.clock)
    with pytest.raises(TenantMoved):
        old.tenant(bob).transact(lambda tr: tr.set(("order",), b"lost"))
    with pytest.raises(TenantMoved):
        old.tenant(bob).enqueue("mail")
    others = next(user for user in USERS if Tenant.parse(user) != bob)
    old.tenant(others).transact(lambda tr: tr.set(("order",), b"sent"))
    old.close()
    assert [grown.tenant(user).transact(lambda tr: tr.get(("order",))) for user in (bob, others)] == [b"paid", b"sent"]


def test_a_fleet_that_does_not_know_the_new_shard_leaves_the_move_to_one_that_does(grown: App) -> None:
    move = grown.move(USERS[0], to="us2")
    old = App({"main": grown.shards.urls["main"]}, clock=grown.clock)
    drain(old, raise_errors=False)
    assert "this fleet's configuration does not have it" in move.progress().now
    old.close()
    drain(grown, within=10)
    assert move.result(timeout=0).state == "moved"


def test_a_new_tenant_lives_on_a_first_shard_after_a_shard_was_added(grown: App) -> None:
    assert {home(grown, f"shop/new {number}") for number in range(20)} == {"main"}
    stored = [shard.layout.placement for shard in grown.shards.values()]
    assert stored == [PlacementRecord("main", ("main",)), PlacementRecord("us2", ("main",))]


# --- Rebalancing ---


def test_a_rebalance_moves_its_share_of_the_tenants_and_then_nobody(grown: App) -> None:
    planned = grown.rebalance(to=["us2"], dry_run=True)
    assert grown.moves() == []
    assert 5 <= len(planned.moves) <= 15
    assert grown.rebalance(to=["us2"]) == planned
    assert grown.rebalance(to=["us2"]).moves == [], "they move already"
    drain(grown)
    moved = {str(tenant) for tenant, _ in planned.moves}
    assert {user for user in USERS if home(grown, user) == "us2"} == moved
    assert grown.rebalance(to=["us2"]).moves == []


def test_a_rebalance_begins_no_more_moves_than_it_may_and_the_next_one_goes_on(grown: App) -> None:
    whole = grown.rebalance(to=["us2"], dry_run=True)
    first = grown.rebalance(to=["us2"], tenants_max=3)
    assert (first.moves, first.whole) == (whole.moves[:3], False)
    second = grown.rebalance(to=["us2"])
    assert (second.moves, second.whole) == (whole.moves[3:], True)


def test_a_tenant_that_has_a_policy_and_nothing_else_moves_with_it(app: App) -> None:
    app.control.pause_tenant("shop", "policy")
    assert home(app, "shop/policy") == "main"
    app.move("shop/policy", to="us2")
    drain(app)
    found = app.shards["us2"].transact(lambda attempt: attempt.tr.get(TenantKeys("shop", "policy").owner).value)
    owner = decode(OwnerRecord, found or b"")
    assert owner is not None
    assert owner.policy.paused


@pytest.mark.parametrize("how", [{"to": []}, {"to": "us2"}, {"to": ["us2"], "tenants_max": 0}])
def test_a_rebalance_refuses_arguments_out_of_range(app: App, how: dict[str, Any]) -> None:
    with pytest.raises(BadArgument):
        app.rebalance(**how)
