"""A paused tenant, kind or shard waits, is shown as paused, and continues where it stopped."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from fairlead import App, BadArgument, Job, Tenant, TenantDatabase, UnknownShard
from fairlead.control import Control
from fairlead.testing import ManualClock, drain
from fairlead.zones.policy import policies
from fairlead.zones.records import KindPolicy
from tests.fairlead.shell import run


@pytest.fixture
def ran(app: App) -> list[str]:
    """The kinds whose handlers ran, in order."""
    kinds: list[str] = []
    for kind in ("mail", "index"):
        app.handler(kind)(lambda job: kinds.append(job.kind))
    return kinds


# --- From a program ---


def test_a_paused_tenant_waits_and_goes_on(app: App, alice: TenantDatabase, ran: list[str]) -> None:
    alice.enqueue("mail")
    app.control.pause_tenant("shop", "alice")
    drain(app)
    assert ran == []
    app.control.resume_tenant("shop", "alice")
    drain(app)
    assert ran == ["mail"]


def test_a_tenant_with_more_queues_than_one_transaction_wakes_goes_on_with_all_of_them(
    app: App, alice: TenantDatabase, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policies, "WAKE_MAX", 2)
    for number in range(5):
        alice.enqueue("mail", zone=f"queue {number}")
    app.control.pause_tenant("shop", "alice")
    drain(app)
    app.control.resume_tenant("shop", "alice")
    drain(app)
    assert ran == 5 * ["mail"]


def test_a_paused_kind_waits_and_others_run(app: App, alice: TenantDatabase, ran: list[str]) -> None:
    alice.enqueue("mail")
    alice.enqueue("index")
    app.control.pause_kind("mail")
    drain(app)
    assert ran == ["index"]
    app.control.resume_kind("mail")
    drain(app)
    assert ran == ["index", "mail"]


def test_a_paused_shard_waits_and_goes_on(app: App, alice: TenantDatabase, ran: list[str]) -> None:
    alice.enqueue("mail")
    app.control.pause_shard("main")
    drain(app)
    assert ran == []
    app.control.resume_shard("main")
    drain(app)
    assert ran == ["mail"]


def test_an_item_that_pauses_its_own_tenant_ends_and_the_next_waits(app: App, alice: TenantDatabase) -> None:
    @app.handler("audit")
    def audit(job: Job) -> None:
        app.control.pause_tenant(job.tenant)

    alice.enqueue("audit")
    alice.enqueue("audit")
    drain(app)
    assert alice.count() == {"audit": 1}


def test_a_limit_does_not_keep_a_test_from_running_what_is_due(app: App, alice: TenantDatabase, ran: list[str]) -> None:
    app.control.limit_kind("mail", max_running=1, per_s=1)
    alice.enqueue("mail")
    alice.enqueue("mail")
    drain(app)
    assert ran == ["mail", "mail"]


def test_a_handler_names_its_kind_and_a_database_its_tenant(app: App, alice: TenantDatabase) -> None:
    send_mail = app.handler("mail")(lambda job: None)
    alice.enqueue(send_mail)
    app.control.pause_kind(send_mail)
    app.control.pause_tenant(alice)
    app.control.limit_kind(send_mail, max_running=1)
    app.control.limit_tenant("shop/alice", max_running=1)
    app.control.set_weight(Tenant("shop", "alice"), weight=2)
    app.control.resume_tenant("shop/alice")
    assert drain(app).runs == 0
    app.control.resume_kind(send_mail)
    assert drain(app).completed == {"mail": 1}


def test_a_weight_that_is_no_number_is_refused(app: App) -> None:
    for weight in (None, True, "3", float("nan"), 0):
        with pytest.raises(BadArgument):
            app.control.set_weight("shop", "alice", weight=weight)  # type: ignore[arg-type]


def test_names_that_nothing_can_have_are_refused(app: App) -> None:
    with pytest.raises(BadArgument):
        app.control.pause_tenant("", "alice")
    with pytest.raises(BadArgument):
        app.control.pause_kind("k" * 97)
    with pytest.raises(UnknownShard):
        app.control.pause_shard("mian")


# --- Several shards ---


@pytest.fixture
def wide() -> Iterator[App]:
    """An application of three shards."""
    made = App(dict.fromkeys(("eu", "us", "asia"), "memory:"), clock=ManualClock(), random=Random(3))
    yield made
    made.close()


def kind_policies(app: App) -> list[dict[str, KindPolicy]]:
    """Return the policies of kinds on each shard."""
    return [
        dict(app.shards[name].transact(lambda attempt: policies.read_policies(attempt.tr)).kinds) for name in app.shards
    ]


Saying = Callable[[Control], None]
SAYINGS: dict[str, Saying] = {
    "pause": lambda control: control.pause_kind("mail"),
    "resume": lambda control: control.resume_kind("mail"),
    "limit": lambda control: control.limit_kind("mail", max_running=3),
    "another limit": lambda control: control.limit_kind("mail", per_s=5),
    "end of the limit": lambda control: control.limit_kind("mail"),
}


@pytest.mark.parametrize("later", SAYINGS)
@pytest.mark.parametrize("earlier", SAYINGS)
def test_of_two_concurrent_policies_of_a_kind_all_shards_keep_the_later(
    wide: App, monkeypatch: pytest.MonkeyPatch, earlier: str, later: str
) -> None:
    """Before, a limit that had ended on the kind's own shard stayed on another one: shown, and without effect."""
    repeat = policies.propagate_kind_policy

    def overtaken(tr: Any, kind: str, policy: KindPolicy) -> None:
        monkeypatch.setattr(policies, "propagate_kind_policy", repeat)
        SAYINGS[later](wide.control)
        repeat(tr, kind, policy)

    monkeypatch.setattr(policies, "propagate_kind_policy", overtaken)
    SAYINGS[earlier](wide.control)
    found = kind_policies(wide)
    assert found == 3 * found[:1]
    SAYINGS[later](wide.control)
    assert [unsaid(each["mail"]) for each in kind_policies(wide)] == [unsaid(each["mail"]) for each in found]


def unsaid(policy: KindPolicy) -> KindPolicy:
    """Return a policy without its timestamp."""
    return msgspec.structs.replace(policy, updated_us=0)


def test_a_policy_that_reached_only_some_shards_is_completed_by_the_next_one(
    wide: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken_off(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as breaking:
        breaking.setattr(policies, "propagate_kind_policy", broken_off)
        with pytest.raises(KeyboardInterrupt):
            wide.control.pause_kind("mail")
    assert sum("mail" in each for each in kind_policies(wide)) == 1
    wide.control.limit_kind("mail", max_running=3)
    assert [each["mail"].paused and each["mail"].max_running for each in kind_policies(wide)] == [3, 3, 3]


@pytest.mark.parametrize("shard", ["eu", "us", "asia"])
def test_a_policy_that_is_dated_in_the_far_future_gives_way_to_a_newer_one(wide: App, shard: str) -> None:
    """Before, one flipped bit in the timestamp made the policy refuse changes for thousands of years."""
    wide.shards[shard].transact(
        lambda attempt: policies.change_kind_policy(attempt.tr, "mail", now_us=2**60, paused=True)
    )
    wide.control.resume_kind("mail")
    found = kind_policies(wide)
    assert not found[0]["mail"].restricts_anything
    assert found == 3 * found[:1]


# --- From the command line ---


@pytest.fixture
def store(tmp_path: Path) -> str:
    url = f"embedded:{tmp_path / 'store'}"
    run("enqueue", "mail", "--tenant", "shop", "alice", "--create", "--store", url)
    return url


@pytest.mark.parametrize(
    ("scope", "said"),
    [
        (["--tenant", "shop/alice"], "tenant shop/alice"),
        (["--kind", "mail"], "kind mail"),
        (["--shard", "main"], "shard main"),
    ],
)
def test_status_shows_a_pause_with_the_command_that_ends_it(store: str, scope: list[str], said: str) -> None:
    paused = run("pause", *scope, "--store", store)
    assert (paused.code, paused.out) == (0, f"paused {said}; items that already run continue to their end\n")
    assert f"fairlead resume {' '.join(scope)}" in run("status", "--store", store).out
    assert run("resume", *scope, "--store", store).out == f"resumed {said}\n"
    assert "resume" not in run("status", "--store", store).out


def test_programs_can_read_what_is_paused(store: str) -> None:
    answer = run("pause", "--kind", "mail", "--store", store, "--json")
    assert answer.json == {"paused": {"kind": "mail"}}
    run("pause", "--tenant", "shop", "alice", "--store", store)
    (shard,) = run("status", "--store", store, "--json").json["shards"]
    assert (shard["paused"], shard["kind_policies"]["mail"]["paused"]) == (False, True)
    assert [(policy["tenant"], policy["paused"]) for policy in shard["tenant_policies"]] == [(["shop", "alice"], True)]


@pytest.mark.parametrize("scope", [[], ["--kind", "mail", "--shard", "main"]])
def test_a_pause_of_nothing_or_of_two_things_is_refused_and_changes_nothing(store: str, scope: list[str]) -> None:
    refused = run("pause", *scope, "--store", store)
    assert refused.code == 2
    assert "--tenant APP/USER" in refused.err
    assert "paused" not in run("status", "--store", store).out


def test_the_command_that_ends_a_pause_can_be_pasted_into_a_shell(store: str) -> None:
    (item,) = [run("enqueue", "mail", "--tenant", "shop", "alice & bob", "--store", store, "--json").json["item"]]
    run("pause", "--tenant", "shop", "alice & bob", "--store", store)
    command = "fairlead resume --tenant 'shop/alice & bob'"
    assert command in run("status", "--store", store).out
    assert command in run("why", item, "--tenant", "shop/alice & bob", "--store", store).out
    assert run(*shlex.split(command)[1:], "--store", store).code == 0
    assert "resume" not in run("status", "--store", store).out


def test_a_shard_that_is_not_there_cannot_be_paused(store: str) -> None:
    assert run("pause", "--shard", "mian", "--store", store).code == 2


@pytest.mark.parametrize("scope", [["--tenant", "shop", "alice"], ["--kind", "mail"]])
def test_status_shows_a_limit_until_it_is_off(store: str, scope: list[str]) -> None:
    said = "at most 3 run at once, at most 0.5 start per second"
    limited = run("limit", *scope, "--max-running", 3, "--per-second", 0.5, "--store", store)
    assert limited.out.endswith(f": {said}\n")
    assert said in run("status", "--store", store).out
    assert run("limit", *scope, "--off", "--store", store).out.endswith(": not limited\n")
    assert "at most" not in run("status", "--store", store).out


def test_status_shows_a_weight(store: str) -> None:
    assert run("set-weight", 3, "--tenant", "shop", "alice", "--store", store).out == "tenant shop/alice has weight 3\n"
    assert "tenant shop/alice has weight 3" in run("status", "--store", store).out


@pytest.mark.parametrize(
    "typed",
    [
        ["limit", "--kind", "mail"],
        ["limit", "--kind", "mail", "--off", "--max-running", "3"],
        ["limit", "--max-running", "3"],
        ["limit", "--kind", "mail", "--max-running", "3", "--burst", "2"],
        ["limit", "--kind", "mail", "--max-running", "0"],
        ["limit", "--kind", "mail", "--per-second", "nan"],
        ["set-weight", "0", "--tenant", "shop", "alice"],
        ["set-weight", "3"],
    ],
)
def test_what_limits_nothing_or_makes_no_sense_is_refused(store: str, typed: list[str]) -> None:
    assert run(*typed, "--store", store).code == 2
    assert "at most" not in run("status", "--store", store).out
