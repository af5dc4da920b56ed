"""Items are found by their keys: of all tenants, on all shards, wherever they were enqueued; and cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fairlead import App, BadArgument, FoundItem, ItemGone, Job, SearchUnfinished, StoreUnavailable, new_item
from fairlead.testing import ManualClock, drain
from fairlead.zones import local_index, local_index_search
from fairlead.zones.engines import transact
from fairlead.zones.maintenance.integrity import check_integrity
from fairlead.zones.spanning import decision, leftovers
from tests.fairlead.shell import run

USERS = [f"shop/user {number}" for number in range(8)]
ORDER = {"order": 7}


@pytest.fixture
def two() -> Iterator[App]:
    """An application on two shards."""
    app = App({"main": "memory:", "us2": "memory:"}, clock=ManualClock())
    yield app
    app.close()


def user_on(app: App, shard: str) -> str:
    return next(user for user in USERS if app.tenant(user).find().name == shard)


def ids(found: list[FoundItem]) -> list[bytes]:
    return [item.item_id for item in found]


def no_entry_is_left(app: App) -> bool:
    for shard in app.shards.values():
        assert check_integrity(shard).findings == []
    return not app.find_items(order=7)


# --- What is found ---


def test_items_of_all_tenants_are_found_with_their_places_and_states(two: App) -> None:
    first = two.tenant(user_on(two, "main")).enqueue("mail", {"about": 7}, keys=ORDER)
    assert isinstance(two.clock, ManualClock)
    two.clock.advance(1)
    second = two.tenant(user_on(two, "us2")).enqueue("ship", zone="other", delay=60, keys={**ORDER, "city": "Ulm"})
    two.tenant(user_on(two, "us2")).enqueue("ship", keys={"order": 8})
    found = two.find_items(order=7)
    assert ids(found) == [first.item_id, second.item_id]
    assert [(each.view.shard, each.zone, each.view.kind, each.state) for each in found] == [
        ("main", "queue", "mail", "vested"),
        ("us2", "other", "ship", "delayed"),
    ]
    assert [str(each.tenant) for each in found] == [user_on(two, "main"), user_on(two, "us2")]
    assert [each.view.keys for each in found] == [{"order": 7}, {"order": 7, "city": "Ulm"}]


def test_an_item_must_have_all_keys(two: App) -> None:
    alice = two.tenant("shop/alice")
    alice.enqueue("mail", keys=ORDER)
    both = alice.enqueue("mail", keys={"order": 7, "city": "Ulm"})
    assert ids(two.find_items(order=7, city="Ulm")) == ids(two.find_items({"order": 7}, city="Ulm")) == [both.item_id]
    assert two.find_items(order=7, city="Bonn") == []


def test_a_key_of_any_name_and_a_long_value_are_found(two: App) -> None:
    keys: dict[str, Any] = {"limit": 5, "order-id": "x" * 5_000}
    made = two.tenant("shop/alice").enqueue("mail", keys=keys)
    assert ids(two.find_items({"limit": 5})) == ids(two.find_items({"order-id": "x" * 5_000})) == [made.item_id]
    assert two.find_items({"limit": 5})[0].view.keys == {"limit": 5, "order-id": None}


@pytest.mark.parametrize("keys", ["order", "", 7, ["order"]])
def test_keys_that_are_no_names_and_values_are_refused(app: App, keys: Any) -> None:
    with pytest.raises(BadArgument, match="names and values") as refused:
        app.find_items(keys)
    assert (refused.value.fields["argument"], refused.value.fields["value"]) == ("keys", keys)


def test_local_items_are_found_on_each_shard(two: App) -> None:
    made = two.enqueue_everywhere("tick", item_id="t", keys=ORDER)
    found = two.find_items(order=7)
    assert {each.view.shard: each.item_id for each in found} == {name: each.item_id for name, each in made.items()}
    for item in found:
        item.cancel()
    assert no_entry_is_left(two)


def test_a_dead_letter_is_found_and_its_cancellation_needs_force(app: App) -> None:
    @app.handler("mail", permanent=(ValueError,))
    def mail(job: Job) -> None:
        raise ValueError("no")

    app.tenant("shop/alice").enqueue("mail", keys=ORDER)
    drain(app, raise_errors=False)
    (found,) = app.find_items(order=7)
    assert (found.state, found.view.keys) == ("dead letter", ORDER)
    with pytest.raises(ItemGone):
        found.cancel()
    found.cancel(force=True)
    assert no_entry_is_left(app)


def test_an_item_that_has_completed_is_not_found(app: App) -> None:
    app.handler("mail")(lambda job: None)
    app.tenant("shop/alice").enqueue("mail", keys=ORDER)
    drain(app)
    assert no_entry_is_left(app)


def test_the_limit_counts_items_that_are_there(two: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries of items that ended meanwhile, or that lack the second key, do not count."""
    alice = two.tenant("shop/alice")
    for _ in range(20):
        alice.enqueue("mail", keys=ORDER)
    wanted = [alice.enqueue("mail", keys={"order": 7, "city": "Ulm"}).item_id for _ in range(3)]
    assert sorted(ids(two.find_items(order=7, city="Ulm", limit=3))) == sorted(wanted)
    assert len(two.find_items(order=7, limit=2)) == 2
    assert len(two.find_items(order=7)) == 23


@pytest.mark.parametrize(
    "how", [{}, {"order": None}, {"order": ""}, {"order": 7, "limit": 0}, {"order": 7, "limit": 10_001}]
)
def test_a_search_that_cannot_be_one_is_refused(two: App, how: dict[str, Any]) -> None:
    with pytest.raises(BadArgument):
        two.find_items(**how)


def test_items_are_found_from_a_coroutine(two: App) -> None:
    made = two.tenant("shop/alice").enqueue("mail", keys=ORDER)
    assert ids(asyncio.run(two.afind_items(order=7))) == [made.item_id]


# --- Wherever items are enqueued ---


def by_bulk(app: App) -> None:
    app.enqueue_many((user, new_item("mail", keys=ORDER)) for user in USERS[:1])


def in_a_transaction(app: App) -> None:
    app.tenant(USERS[0]).transact(lambda tr: tr.enqueue("mail", keys=ORDER))


def across_shards(app: App) -> None:
    def body(tx: Any) -> None:
        for shard in ("main", "us2"):
            tx.on(user_on(app, shard)).set(("key",), b"1")
        tx.on(user_on(app, "us2")).enqueue("mail", keys=ORDER)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(app.shards.calls, "start", lambda call: None)  # The process dies once it has the answer.
        app.transact(body)


def by_a_handler(app: App) -> None:
    mail = app.handler("mail")(lambda job: None)
    mail.enqueue(USERS[0], keys=ORDER)


def by_a_job(app: App) -> None:
    @app.handler("first")
    def first(job: Job) -> None:
        job.transact(lambda tr: tr.enqueue("mail", keys=ORDER, delay=60))

    app.tenant(USERS[0]).enqueue("first")
    drain(app)


def by_a_transactional_handler(app: App) -> None:
    @app.handler("first", transactional=True)
    def first(job: Job, tr: Any) -> None:
        tr.enqueue("mail", keys=ORDER, delay=60)

    app.tenant(USERS[0]).enqueue("first")
    drain(app)


def by_a_workflow(app: App) -> None:
    @app.workflow("first", version=1)
    def first(wf: Any) -> None:
        wf.enqueue("mail", keys=ORDER, delay=60)

    app.tenant(USERS[0]).enqueue("first")
    drain(app)


def as_a_child(app: App) -> None:
    @app.workflow("first", version=1)
    def first(wf: Any) -> None:
        wf.call("mail", keys=ORDER, delay=60)

    app.tenant(USERS[0]).enqueue("first")
    drain(app)


def as_a_child_on_another_shard(app: App) -> None:
    other = user_on(app, "us2")

    @app.workflow("first", version=1)
    def first(wf: Any) -> None:
        wf.call("mail", keys=ORDER, delay=60, on=other)

    app.tenant(user_on(app, "main")).enqueue("first")
    drain(app)


WAYS = [
    by_bulk,
    in_a_transaction,
    across_shards,
    by_a_handler,
    by_a_job,
    by_a_transactional_handler,
    by_a_workflow,
    as_a_child,
    as_a_child_on_another_shard,
]


@pytest.mark.parametrize("enqueue", WAYS, ids=lambda each: each.__name__)
def test_an_item_is_found_however_it_was_enqueued_and_can_be_cancelled(
    two: App, enqueue: Callable[[App], None]
) -> None:
    enqueue(two)
    (found,) = two.find_items(order=7)
    assert found.view.kind == "mail"
    found.cancel()
    assert no_entry_is_left(two)


def test_items_of_many_transactions_across_shards_are_found_before_they_are_applied(
    two: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leftovers, "LISTED_MAX", 2)
    monkeypatch.setattr(two.shards.calls, "start", lambda call: None)  # The process dies once it has the answer.
    users = [f"shop/{number}" for number in range(40)]
    main, *_ = (user for user in users if two.tenant(user).find().name == "main")
    elsewhere = [user for user in users if two.tenant(user).find().name == "us2"][:5]

    def body(tx: Any, user: str) -> None:
        tx.on(main).set(("key",), b"1")
        tx.on(user).enqueue("mail", keys=ORDER)

    for user in elsewhere:
        two.transact(partial(body, user=user))
    assert sorted(str(item.tenant) for item in two.find_items(order=7)) == sorted(elsewhere)


def test_an_item_of_a_transaction_that_is_not_decided_holds_no_search_up(two: App) -> None:
    main, other = user_on(two, "main"), user_on(two, "us2")
    seen: list[int] = []

    def body(tx: Any) -> None:
        tx.on(main).set(("key",), b"1")
        tx.on(other).enqueue("mail", keys=ORDER)

    decide = decision.decide

    def search_and_decide(*arguments: Any, **options: Any) -> Any:
        seen.append(len(two.find_items(order=7)))
        return decide(*arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decision, "decide", search_and_decide)
        two.transact(body)
    assert seen == [0]
    assert len(two.find_items(order=7)) == 1


# --- Moves ---


@pytest.fixture
def moving(two: App) -> str:
    """A tenant with an item, who lives on `main`."""
    user = user_on(two, "main")
    two.tenant(user).enqueue("mail", keys=ORDER)
    return user


def test_an_item_of_a_tenant_that_has_moved_is_found_and_cancelled(two: App, moving: str) -> None:
    two.handler("mail")(lambda job: None)
    two.move(moving, to="us2")
    two.tenant(moving).enqueue("mail", delay=60, keys=ORDER)
    drain(two)
    (found,) = two.find_items(order=7)
    assert found.view.shard == "us2"
    found.cancel()
    assert no_entry_is_left(two)


def test_a_search_that_meets_a_move_in_each_round_says_so(
    two: App, moving: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def count_and_transact(db: Any, body: Callable[[Any], Any]) -> Any:
        transact(two.shards["us2"].db, local_index.count_move)
        return transact(db, body)

    monkeypatch.setattr(local_index_search, "transact", count_and_transact)
    assert len(two.find_items(order=7, limit=1)) == 1, "enough were found"
    with pytest.raises(SearchUnfinished):
        two.find_items(order=7)


def test_a_shard_that_is_away_makes_no_answer_whole(empty_directory: Path) -> None:
    app = App({"main": "embedded:main", "us2": "embedded:us2"})
    app.tenant("shop/alice").enqueue("mail", keys=ORDER)
    app.find_items(order=7)
    app.close()
    (empty_directory / "us2" / "data.mdb").write_bytes(b"no store")
    away = App({"main": "embedded:main", "us2": "embedded:us2"})
    with pytest.raises(StoreUnavailable):
        away.find_items(order=7)
    away.close()


# --- The command line ---


STORE = ("--store", "embedded:data")


@pytest.fixture
def typed(empty_directory: Path) -> bytes:
    app = App("embedded:data")
    made = app.tenant("shop/alice").enqueue("mail", {"about": 7}, keys={"order": 7, "city": "Ulm"})
    app.close()
    return made.item_id


def test_the_command_lists_items(typed: bytes) -> None:
    answer = run("find", "order=7", "city=Ulm", *STORE, "--json").json
    assert [(item["item"], item["state"], item["keys"]) for item in answer["items"]] == [
        (typed.hex(), "vested", {"order": 7, "city": "Ulm"})
    ]
    shown = run("find", "order=7", *STORE)
    assert typed.hex() in shown.out
    assert "shop/alice" in shown.out
    assert run("find", 'order="7"', *STORE, "--json").json["items"] == []


def test_the_command_cancels_items_and_notes_it(typed: bytes) -> None:
    assert run("find", "order=7", "--cancel", *STORE, "--json").json["outcomes"] == {typed.hex(): "cancelled"}
    assert run("find", "order=7", *STORE, "--json").json["items"] == []
    assert [entry["what"] for entry in run("log", *STORE, "--json").json["entries"]] == ["cancel"]


def test_an_item_that_was_typed_with_keys_is_found(empty_directory: Path) -> None:
    run("enqueue", "mail", "--tenant", "shop/alice", "--key", "order=7", "--key", 'code="08"', "--create", *STORE)
    (item,) = run("find", 'code="08"', *STORE, "--json").json["items"]
    assert item["keys"] == {"order": 7, "code": "08"}


@pytest.mark.parametrize("words", [["order"], ["order="], ["=7"], ['order="7'], ["order=7", "order=8"], []])
def test_a_key_that_is_typed_wrongly_is_refused(typed: bytes, words: list[str]) -> None:
    assert run("find", *words, *STORE).code == 2


def test_force_without_cancel_is_refused(typed: bytes) -> None:
    assert run("find", "order=7", "--force", *STORE).code == 2
