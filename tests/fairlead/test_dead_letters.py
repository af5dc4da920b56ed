"""Dead letters are retried and discarded in bulk, and the audit log has an entry for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead import (
    App,
    BadArgument,
    DeadLetterFilter,
    Job,
    Operator,
    RegisteredHandler,
    TenantDatabase,
    dead_letters,
)
from fairlead.audit_log import MergedEntry, read_log
from fairlead.shards import UnknownShard
from fairlead.testing import drain
from fairlead.zones.queue.dead_letter_search import BULK_ITEMS_MAX
from tests.fairlead.shell import everything, run


def fail_all(app: App, alice: TenantDatabase, count: int, kind: str = "mail") -> None:
    for number in range(count):
        alice.enqueue(kind, {"number": number})
    drain(app, raise_errors=False)


@pytest.fixture
def broken(app: App) -> list[bool]:
    """Whether the handlers fail: its only element."""
    state = [True]

    def handle(job: Job) -> None:
        if state[0]:
            raise ValueError(f"no {job.kind} today")

    for kind in ("mail", "index"):
        app.handler(kind, permanent=(ValueError,))(handle)
    return state


def told(app: App) -> list[MergedEntry]:
    return read_log(app.shards, entries_max=100)


# --- From a program ---


def test_a_dry_run_says_how_many_and_changes_nothing(app: App, alice: TenantDatabase, broken: list[bool]) -> None:
    fail_all(app, alice, 3)
    fail_all(app, alice, 2, "index")
    would = app.retry_dead_letters(DeadLetterFilter(error="today"), dry_run=True)
    assert (would.count, dict(would.by_kind)) == (5, {"mail": 3, "index": 2})
    assert len(alice.dead_letters()) == 5
    assert told(app) == []


def test_a_filter_takes_the_handler_and_the_tenant_as_it_is_printed(
    app: App, alice: TenantDatabase, broken: list[bool]
) -> None:
    """Neither is compared with what is stored as it stands: the filter would match nothing."""
    fail_all(app, alice, 2)
    mail = RegisteredHandler(print, "mail", {})
    assert app.retry_dead_letters(DeadLetterFilter(kind=mail, tenant="shop/alice"), dry_run=True).count == 2
    assert app.discard_dead_letters(DeadLetterFilter(tenant="shop/bob")).count == 0
    with pytest.raises(BadArgument, match="APP/USER"):
        app.discard_dead_letters(DeadLetterFilter(tenant="alice"))


def test_more_than_one_transactions_worth_is_retried_and_runs(
    app: App, alice: TenantDatabase, broken: list[bool]
) -> None:
    count = BULK_ITEMS_MAX + 50
    fail_all(app, alice, count)
    broken[0] = False
    assert app.retry_dead_letters(DeadLetterFilter(kind="mail")).count == count
    assert drain(app).completed == {"mail": count}
    (merged_entry,) = told(app)
    assert (merged_entry.audit_entry.what, merged_entry.target, merged_entry.items, merged_entry.ended) == (
        "retry",
        "kind mail",
        count,
        True,
    )


def test_what_fails_again_meanwhile_is_not_retried_again_by_the_same_call(
    app: App, alice: TenantDatabase, broken: list[bool]
) -> None:
    fail_all(app, alice, 2)
    app.clock.sleep_us(1)
    assert app.retry_dead_letters(DeadLetterFilter()).count == 2
    drain(app, raise_errors=False)
    assert len(alice.dead_letters()) == 2
    before = app.clock.now_us()
    app.clock.sleep_us(1)
    assert app.discard_dead_letters(DeadLetterFilter(before_us=before)).count == 0
    assert app.discard_dead_letters(DeadLetterFilter()).count == 2


def test_an_interrupted_bulk_operation_reports_its_count_and_continues_when_repeated(
    app: App, alice: TenantDatabase, broken: list[bool]
) -> None:
    fail_all(app, alice, BULK_ITEMS_MAX + 5)

    def stop(result: object) -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        dead_letters.discard_all(app.shards, DeadLetterFilter(), app.operator, go_on=stop)
    (merged_entry,) = told(app)
    assert (merged_entry.items, merged_entry.ended) == (BULK_ITEMS_MAX, False)
    assert app.discard_dead_letters(DeadLetterFilter()).count == 5


def test_a_stopped_bulk_operation_is_logged_as_interrupted(app: App, alice: TenantDatabase, broken: list[bool]) -> None:
    """As the dashboard stops an operation after some seconds."""
    fail_all(app, alice, BULK_ITEMS_MAX + 5)
    result = dead_letters.discard_all(app.shards, DeadLetterFilter(), app.operator, go_on=lambda result: False)
    assert not result.complete
    (merged_entry,) = told(app)
    assert (merged_entry.items, merged_entry.ended) == (BULK_ITEMS_MAX, False)


def test_a_bulk_operation_that_stopped_on_the_second_shard_is_logged_as_interrupted_on_the_first(
    tmp_path: Path,
) -> None:
    stores = {name: f"embedded:{tmp_path / name}" for name in ("eu", "us")}
    app = App(stores)
    app.handler("mail", permanent=(ValueError,))(refuse)
    app.local("mail", shard="eu").enqueue("mail")
    drain(app, raise_errors=False)
    looked_at = iter([True, False])
    dead_letters.retry_all(app.shards, DeadLetterFilter(), app.operator, go_on=lambda result: next(looked_at))
    (merged_entry,) = told(app)
    assert (merged_entry.shards, merged_entry.items, merged_entry.ended) == (("eu",), 1, False)
    app.close()
    typed = [each for name, url in stores.items() for each in ("--store", f"{name}={url}")]
    assert "retry: interrupted, or still running" in run("log", *typed).out
    assert run("log", *typed, "--json").json["entries"][0]["ended"] is False


def refuse(job: Job) -> None:
    raise ValueError("no")


@pytest.fixture
def two_shards(tmp_path: Path) -> Iterator[App]:
    """An application of two shards; each has a dead letter of `mail` among its local items."""
    app = App({name: f"embedded:{tmp_path / name}" for name in ("eu", "us")})
    app.handler("mail", permanent=(ValueError,))(refuse)
    app.enqueue_everywhere("mail")
    assert drain(app, raise_errors=False).dead_lettered == {"mail": 2}
    yield app
    app.close()


def left_on(app: App) -> list[str]:
    """Return the shards with a local dead letter of `mail`."""
    return [name for name in app.shards if app.local("mail", shard=name).dead_letters()]


def test_a_bulk_operation_on_one_shard_changes_no_other(two_shards: App) -> None:
    app = two_shards
    assert app.retry_dead_letters(DeadLetterFilter(shard="eu"), dry_run=True).count == 1
    assert app.discard_dead_letters(DeadLetterFilter(kind="mail", shard="eu")).count == 1
    assert left_on(app) == ["us"]
    (merged_entry,) = told(app)
    assert (merged_entry.target, merged_entry.shards) == ("kind mail, shard eu", ("eu",))


def test_a_bulk_operation_on_an_unknown_shard_is_refused(two_shards: App) -> None:
    with pytest.raises(UnknownShard):
        two_shards.discard_dead_letters(DeadLetterFilter(shard="asia"))
    assert left_on(two_shards) == ["eu", "us"]


@pytest.mark.parametrize("chosen", ["eu", "us", None])
@pytest.mark.parametrize("command", ["retry", "discard"])
def test_local_items_in_bulk_are_those_of_the_shard_that_is_named_or_the_kinds_own(
    two_shards: App, command: str, chosen: str | None
) -> None:
    """Before, `discard --local mail --shard eu` deleted those of all shards."""
    app = two_shards
    own = app.local("mail").shard.name
    stores = [each for name, url in app.shards.urls.items() for each in ("--store", f"{name}={url}")]
    named = [] if chosen is None else ["--shard", chosen]
    typed = ["dead-letters", command, "--local", "mail", *named, *stores]
    assert run(*typed, "--dry-run", "--json").json["found"] == 1
    assert run(*typed, "--json").json[{"retry": "retried", "discard": "discarded"}[command]] == 1
    assert left_on(app) == [name for name in ("eu", "us") if name != (chosen or own)]


def test_an_action_on_all_shards_is_logged_once(tmp_path: Path) -> None:
    app = App({"eu": f"embedded:{tmp_path / 'eu'}", "us": f"embedded:{tmp_path / 'us'}"})
    app.operator = Operator("eve", "program")
    app.control.pause_kind("mail")
    (merged_entry,) = told(app)
    assert (merged_entry.audit_entry.by, merged_entry.audit_entry.what, merged_entry.target, merged_entry.shards) == (
        "eve",
        "pause",
        "kind mail",
        ("eu", "us"),
    )
    app.close()


def test_an_application_without_an_operator_writes_no_audit_entry(app: App, alice: TenantDatabase) -> None:
    item_id = alice.enqueue("mail").item_id
    alice.cancel(item_id)
    assert told(app) == []
    alice.enqueue("mail", item_id="again")
    alice.cancel("again", by=Operator("eve", "dashboard"))
    assert [(each.audit_entry.what, each.audit_entry.to["tenant"]) for each in told(app)] == [
        ("cancel", ["shop", "alice"])
    ]


# --- From the command line ---


@pytest.fixture
def store(tmp_path: Path) -> str:
    """A store with three dead letters of two kinds, of two tenants."""
    url = f"embedded:{tmp_path / 'store'}"
    app = App(url)

    @app.handler("mail", permanent=(ValueError,))
    @app.handler("index", permanent=(ValueError,))
    def handle(job: Job) -> None:
        raise ValueError(f"no {job.kind} today")

    for user, kind in (("alice", "mail"), ("alice", "index"), ("bob", "mail")):
        app.tenant("shop", user).enqueue(kind, item_id=f"{user}-{kind}")
    drain(app, raise_errors=False)
    app.close()
    return url


@pytest.mark.parametrize(
    ("which", "count"),
    [
        (["--kind", "mail"], 2),
        (["--tenant", "shop", "alice"], 2),
        (["--kind", "mail", "--tenant", "shop", "alice"], 1),
        (["--error", "no index"], 1),
        (["--before", "1h"], 0),
        (["--before", "2100-01-01T00:00:00+00:00"], 3),
        (["--tenant", "shop", "alice", "--zone", "other"], 0),
        (["--all"], 3),
    ],
)
def test_a_dry_run_on_the_command_line_counts_what_is_meant(store: str, which: list[str], count: int) -> None:
    before = everything(store)
    answer = run("dead-letters", "retry", *which, "--dry-run", "--store", store, "--json").json
    assert (answer["found"], answer["retried"], answer["dry_run"]) == (count, 0, True)
    assert run("dead-letters", "discard", *which, "--dry-run", "--store", store).out.endswith(
        f"{count} dead letter{'' if count == 1 else 's'} would be discarded: nothing was changed\n"
    )
    assert everything(store) == before


def test_items_are_retried_and_discarded_in_bulk_and_the_log_says_by_whom(store: str) -> None:
    assert run("dead-letters", "retry", "--kind", "mail", "--store", store).out.endswith("2 dead letters retried\n")
    assert run("dead-letters", "discard", "--error", "index", "--store", store, "--json").json["discarded"] == 1
    run("pause", "--kind", "mail", "--store", store)
    run("cancel", "alice-mail", "--tenant", "shop", "alice", "--store", store)
    entries = run("log", "--store", store, "--json").json["entries"]
    assert [(audit_entry["what"], audit_entry["count"], audit_entry["through"]) for audit_entry in entries] == [
        ("cancel", 1, "command line"),
        ("pause", 1, "command line"),
        ("discard", 1, "command line"),
        ("retry", 2, "command line"),
    ]
    out = run("log", "--store", store).out
    assert "kind mail" in out
    assert "error index" in out


def test_a_change_of_a_single_item_is_logged_too(store: str) -> None:
    run("dead-letters", "retry", "alice-mail", "--tenant", "shop", "alice", "--store", store)
    run("dead-letters", "discard", "alice-index", "--tenant", "shop", "alice", "--store", store)
    assert [audit_entry["what"] for audit_entry in run("log", "--store", store, "--json").json["entries"]] == [
        "discard",
        "retry",
    ]


@pytest.mark.parametrize(
    "typed",
    [
        [],
        ["--all", "--kind", "mail"],
        ["alice-mail"],
        ["alice-mail", "--tenant", "shop", "alice", "--dry-run"],
        ["alice-mail", "--tenant", "shop", "alice", "--kind", "mail"],
        ["--before", "yesterday"],
        ["--before", "2026-11-22T08:00:00"],
    ],
)
def test_what_names_nothing_or_two_things_is_refused(store: str, typed: list[str]) -> None:
    before = everything(store)
    assert run("dead-letters", "discard", *typed, "--store", store).code == 2
    assert everything(store) == before
