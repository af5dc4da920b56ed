"""`fairlead locks abort`: what a transaction across shards has left locked, because its home shard is lost."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from fairlead import App, Config, TenantMoved
from fairlead.lost_transactions import HomeAnswers, abort_transaction
from fairlead.zones.errors import TenantLocked
from fairlead.zones.keyspace import TenantKeys
from fairlead.zones.layout import Tenant
from fairlead.zones.ownership import check_owner
from fairlead.zones.placement import home
from fairlead.zones.records import TransactionId
from fairlead.zones.spanning import decision, participant
from fairlead.zones.spanning.transaction_keys import prepared_key
from fairlead.zones.spanning.write_set import WriteSet
from fairlead.zones.transaction_runner import Attempt
from tests.fairlead.shell import Answer, run

NAMES = ("eu", "us")
TRANSACTION = TransactionId(1_700_000_000_000_000, bytes(range(10)), 1)
CLIENTS = [Tenant("bank", f"client{number}") for number in range(20)]
LOCKED = [client for client in CLIENTS if home(client, NAMES) == "us"][:2]
FREE = [client for client in CLIENTS if home(client, NAMES) == "us"][2]


@pytest.fixture
def stores(tmp_path: Path) -> dict[str, str]:
    """Two shards. A transaction, decided by "eu", has prepared on "us"; nothing is decided."""
    urls = {name: f"embedded:{tmp_path / name}" for name in NAMES}
    app = App(config=Config(shards=urls))
    for client in [*LOCKED, FREE]:
        app.tenant(client).transact(lambda tr: tr.set(("balance",), b"1"))
    there, home_id = app.shards["us"], app.shards["eu"].layout.shard_id

    def prepare(attempt: Attempt) -> None:
        locked = dict.fromkeys(LOCKED, True)
        participant.prepare(attempt.tr, there.layout, TRANSACTION, locked, WriteSet(), home_id=home_id)

    there.transact(prepare)
    app.close()
    return urls


def abort(stores: dict[str, str], *options: str, transaction: str = str(TRANSACTION)) -> Answer:
    """Run the command with the shard "us" alone: its home shard is not there."""
    return run("locks", "abort", transaction, *options, "--store", stores["us"], "--json")


def both(stores: dict[str, str]) -> App:
    return App(config=Config(shards=stores))


def alone(stores: dict[str, str]) -> App:
    """Open the shard "us" as a tool does, under another name."""
    app = App(stores["us"])
    app.shards.must_exist = True
    return app


def damage(stores: dict[str, str], value: bytes | None) -> None:
    """Overwrite what is prepared; None: clear it, as `fairlead check --quarantine` does."""
    app, key = alone(stores), prepared_key(TRANSACTION)

    def body(attempt: Attempt) -> None:
        if value is None:
            attempt.tr.clear(key)
        else:
            attempt.tr.set(key, value)

    app.shards["main"].transact(body)
    app.close()


def locked(stores: dict[str, str]) -> list[Tenant]:
    """Return which of the tenants a plain transaction finds locked."""
    app = alone(stores)
    shard, found = app.shards["main"], []

    def read(attempt: Attempt, client: Tenant) -> None:
        check_owner(attempt.tr, shard.layout, keys := TenantKeys(*client), attempt.tr.get(keys.owner).value)

    for client in [*LOCKED, FREE]:
        try:
            shard.transact(partial(read, client=client), waits_for_locks=False)
        except TenantLocked:
            found.append(client)
        except TenantMoved:
            pass  # This tool knows the shard by another name.
    app.close()
    return found


def test_tenants_that_a_lost_shard_has_left_locked_are_freed_once_the_operator_says_that_it_is_lost(
    stores: dict[str, str], tmp_path: Path
) -> None:
    shutil.rmtree(tmp_path / "eu")
    refused = abort(stores)
    assert refused.code == 2
    assert "cannot be asked" in refused.error["error"]
    assert "--home-is-lost" in refused.error["do"]
    assert locked(stores) == LOCKED
    done = abort(stores, "--home-is-lost")
    assert done.code == 0
    assert [each["tenant"] for each in done.json["unlocked"]] == [list(client) for client in LOCKED]
    assert locked(stores) == []
    (entry,) = run("log", "--store", stores["us"], "--json").json["entries"]
    assert entry["what"] == "abort transaction"
    assert entry["to"]["transaction"] == str(TRANSACTION)


def test_a_transaction_whose_home_shard_answers_is_not_aborted_by_hand(stores: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "fairlead.toml"
    file.write_text("[shards]\n" + "".join(f'{name} = "{url}"\n' for name, url in stores.items()))
    refused = run(
        "locks", "abort", str(TRANSACTION), "--home-is-lost", "--config", str(tmp_path / "fairlead.toml"), "--json"
    )
    assert refused.code == 2
    assert "can be asked" in refused.error["error"]
    assert refused.error["fields"]["home"] == "eu"
    assert refused.error["fields"]["it_is"] == "undecided"


@pytest.mark.parametrize("value", [b"damaged", None])
def test_what_is_damaged_or_set_aside_is_given_up_for_a_lost_shard(stores: dict[str, str], value: bytes | None) -> None:
    damage(stores, value)
    assert abort(stores).code == 2
    assert locked(stores) == LOCKED
    assert abort(stores, "--home-is-lost").code == 0
    assert locked(stores) == []


def test_what_is_damaged_is_dropped_if_home_says_that_it_is_aborted(stores: dict[str, str], tmp_path: Path) -> None:
    damage(stores, b"damaged")
    app = both(stores)
    done = abort_transaction(app.shards, str(TRANSACTION), app.operator, app.random, home_is_lost=False)
    assert dict(done.tenants) == {"us": LOCKED}
    eu = app.shards["eu"]
    assert eu.transact(lambda attempt: decision.ask(attempt.tr, TRANSACTION)) is False
    app.close()


def test_what_is_damaged_and_was_committed_is_not_dropped(stores: dict[str, str]) -> None:
    damage(stores, b"damaged")
    app = both(stores)
    eu, us = app.shards["eu"], app.shards["us"]
    eu.transact(lambda attempt: decision.decide(attempt.tr, TRANSACTION, [us.layout.shard_id], now_us=attempt.now_us))
    with pytest.raises(HomeAnswers) as refused:
        abort_transaction(app.shards, str(TRANSACTION), app.operator, app.random, home_is_lost=True)
    assert refused.value.fields["it_is"] == "committed"
    app.close()


def test_what_a_newer_version_has_prepared_is_left_alone(stores: dict[str, str]) -> None:
    damage(stores, b"\x02newer")
    refused = abort(stores, "--home-is-lost")
    assert refused.code == 2
    assert refused.error["fields"]["newer"] is True


def test_a_transaction_that_has_left_nothing_is_not_there(stores: dict[str, str]) -> None:
    refused = abort(stores, "--home-is-lost", transaction=str(TRANSACTION._replace(attempt=2)))
    assert refused.code == 4
    assert "nothing of this transaction is prepared" in refused.error["error"]


@pytest.mark.parametrize("text", ["", "seven", "1-2-3", "xx-00-1", f"{TRANSACTION}0-1"])
def test_what_names_no_transaction_is_refused(stores: dict[str, str], text: str) -> None:
    refused = abort(stores, transaction=text)
    assert refused.code == 2
    assert refused.error["fields"]["argument"] == "transaction"


def say_that_home_cannot_be_asked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("fairlead.lost_transactions._is_aborted_at_home", lambda *args: False)


def say_that_home_has_aborted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("fairlead.lost_transactions._is_aborted_at_home", lambda *args: True)


def write_no_audit_entry(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("fairlead.lost_transactions.audit_log.write", lambda *args: None)


@pytest.mark.parametrize(
    "plant, story",
    [
        (say_that_home_cannot_be_asked, test_a_transaction_whose_home_shard_answers_is_not_aborted_by_hand),
        (
            say_that_home_has_aborted,
            test_tenants_that_a_lost_shard_has_left_locked_are_freed_once_the_operator_says_that_it_is_lost,
        ),
        (
            write_no_audit_entry,
            test_tenants_that_a_lost_shard_has_left_locked_are_freed_once_the_operator_says_that_it_is_lost,
        ),
    ],
)
def test_a_story_finds_a_planted_bug(
    stores: dict[str, str],
    tmp_path: Path,
    plant: Callable[[pytest.MonkeyPatch], None],
    story: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, ValueError)):
        story(stores, tmp_path)
