"""The commands `move`, `moves` and `rebalance`, as an operator types them."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fairlead import App
from fairlead.cli.moves import GOES_ON, MAY_GO_ON
from fairlead.testing import drain
from tests.fairlead.shell import ROOT, Answer, run

MAIN = ("--store", "main=embedded:main")
BOTH = (*MAIN, "--store", "us2=embedded:us2")
LOST = (*MAIN, "--store", "us2=embedded:nowhere")
TO_US2 = ("shop/alice", "--to", "us2")
BEGUN = "a running fleet carries it out; fairlead moves shows how far it is"


@pytest.fixture(autouse=True)
def stores(empty_directory: Path) -> None:
    """Make a shard on which alice and bob live, and a second shard that was added later."""
    first = App({"main": "embedded:main"})
    for user in ("alice", "bob"):
        first.tenant("shop", user).transact(lambda tr: tr.set(("order", 7), b"paid"))
        first.tenant("shop", user).enqueue("mail", delay=3_600)
    first.close()
    with grown() as app:
        assert app.shards["us2"].made
        assert app.tenant("shop/alice").find().name == app.tenant("shop/bob").find().name == "main"


@contextmanager
def grown() -> Iterator[App]:
    app = App({"main": "embedded:main", "us2": "embedded:us2"})
    try:
        yield app
    finally:
        app.close()


def carry_out() -> None:
    """Do what a fleet does."""
    with grown() as app:
        drain(app)


def test_a_tenant_is_moved_and_the_moves_are_listed() -> None:
    begun = run("move", *TO_US2, *BOTH)
    assert begun.code == 0
    nobody = "has not begun; its shard has no live consumer; start one with fairlead run"
    assert begun.out.splitlines() == [f"moving shop/alice from main to us2: {nobody}", BEGUN]
    (listed,) = run("moves", *BOTH, "--json").json["moves"]
    assert (listed["tenant"], listed["from"], listed["to"]) == (["shop", "alice"], "main", "us2")
    assert (listed["state"], listed["fraction"], listed["ended"], listed["mb_per_s"]) == ("under way", 0, None, 16)
    carry_out()
    after = run("moves", *BOTH, "--json").json
    assert after["unread"] == []
    (moved,) = after["moves"]
    assert (moved["id"], moved["state"], moved["fraction"], moved["error"]) == (listed["id"], "moved", 1, "")
    assert moved["copied_rows"] > 1
    assert moved["frozen_s"] > 0
    assert moved["slowed_s"] == 0
    row = next(line for line in run("moves", *BOTH).out.splitlines() if line.startswith("shop/alice"))
    assert row.split()[:3] == ["shop/alice", "main", "us2"]
    assert row.split()[-1] == "moved"
    assert run("peek", "--tenant", "shop/alice", *BOTH, "--json").json["count"] == {"mail": 1}


@pytest.mark.parametrize("typed", [("shop/alice",), ("shop", "alice")])
def test_a_tenant_is_typed_in_one_word_or_two(typed: tuple[str, ...]) -> None:
    assert run("move", *typed, "--to", "us2", *BOTH, "--json").json["move"]["tenant"] == ["shop", "alice"]


def test_a_dry_run_says_what_would_be_copied_and_changes_nothing() -> None:
    planned = run("move", *TO_US2, "--dry-run", "--rate", "2", *BOTH, "--json").json["plan"]
    assert (planned["tenant"], planned["from"], planned["to"]) == (["shop", "alice"], "main", "us2")
    assert planned["rows"] > 1
    assert planned["seconds"] == planned["bytes"] / 2_000_000
    assert planned["warnings"] == []
    assert run("pause", "--shard", "us2", *BOTH).code == 0
    text = run("move", *TO_US2, "--dry-run", *BOTH).out
    first, second = text.splitlines()
    assert first.startswith("would move shop/alice from main to us2: ")
    assert "copying takes at least 0 ms at 16 MB/s" in first
    assert second.startswith("warning: the destination is paused")
    assert run("moves", *BOTH).out == "no tenant moves, and no move ended within a day\n"


def test_a_command_that_waits_says_how_the_move_ended() -> None:
    fleet = threading.Timer(0.3, carry_out)
    fleet.start()
    waited = run("move", *TO_US2, "--wait", *BOTH)
    fleet.join()
    assert waited.code == 0
    assert waited.out.startswith("moved shop/alice from main to us2: ")
    assert "transactions waited" in waited.out


def test_a_command_that_waits_for_a_move_which_fails_ends_with_1() -> None:
    def cancel() -> None:
        with grown() as app:
            while not app.cancel_move("shop/alice"):
                app.clock.sleep_us(10_000)
            drain(app)

    fleet = threading.Thread(target=cancel)
    fleet.start()
    waited = run("move", *TO_US2, "--wait", *BOTH, "--json")
    fleet.join()
    assert waited.code == 1
    assert waited.error["error"] == "the tenant was not moved"
    assert waited.error["fields"]["reason"] == "it was cancelled"


def test_an_interrupted_wait_ends_with_130_and_the_move_goes_on() -> None:
    command = [sys.executable, "-m", "fairlead", "move", *TO_US2, "--wait", *BOTH]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={"PYTHONPATH": str(ROOT)}) as process:
        with grown() as app:
            while not app.moves():
                app.clock.sleep_us(10_000)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    # The signal may come while `app.move` returns: then the command does not know yet that the move has begun.
    assert said in {f"the move of shop/alice {known}\n" for known in (GOES_ON, MAY_GO_ON)}
    carry_out()
    assert run("moves", *BOTH, "--json").json["moves"][0]["state"] == "moved"


def test_a_move_is_cancelled_and_the_audit_log_names_both_actions() -> None:
    run("move", *TO_US2, *BOTH)
    asked = run("move", "shop/alice", "--cancel", *BOTH)
    assert asked.code == 0
    assert asked.out == "the move of shop/alice is being taken back; fairlead moves shows when it has ended\n"
    assert "being cancelled; has not begun" in run("moves", *BOTH).out
    carry_out()
    assert "cancelled: it was cancelled" in run("moves", *BOTH).out
    entries = run("log", *BOTH, "--json").json["entries"]
    assert [(each["what"], each["to"], each["through"], each["shards"]) for each in entries] == [
        (what, {"tenant": ["shop", "alice"], "destination": "us2"}, "command line", ["main"])
        for what in ("cancel move", "move")
    ]


def test_a_rebalance_lists_whom_it_moves() -> None:
    planned = run("rebalance", "--to", "us2", "--dry-run", *BOTH, "--json").json
    assert (planned["dry_run"], planned["whole"]) == (True, True)
    assert planned["moves"] == [{"tenant": ["shop", "bob"], "to": "us2"}]
    lines = run("rebalance", "--to", "us2", *BOTH).out.splitlines()
    assert "began 1 move" in lines
    assert any(line.split() == ["shop/bob", "us2"] for line in lines)
    carry_out()
    assert run("rebalance", "--to", "us2", *BOTH).out == "began 0 moves\n"


def test_status_says_that_a_tenant_moves() -> None:
    run("move", *TO_US2, *BOTH)
    assert "main: 1 tenant moves to other shards; fairlead moves lists them\n" in run("status", *BOTH).out
    assert [each["moves"] for each in run("status", *BOTH, "--json").json["shards"]] == [1, 0]


def test_why_says_that_the_tenant_of_an_item_moves() -> None:
    (item,) = run("peek", "--tenant", "shop/alice", *BOTH, "--json").json["items"]
    run("move", *TO_US2, *BOTH)
    why = ("why", item["item"], "--tenant", "shop/alice", *BOTH)
    moves = "to shard us2: has not begun; its items run meanwhile"
    assert f"its tenant moves: {moves}\n" in run(*why).out
    assert run(*why, "--json").json["details"]["tenant_moves"] == moves


# --- What is refused: with a sentence, a remedy, and an exit code ---


def refusal(answer: Answer, code: int) -> str:
    assert (answer.code, answer.out) == (code, "")
    return answer.err


@pytest.mark.parametrize(
    ("typed", "code", "said"),
    [
        (("shop/nobody", "--to", "us2"), 2, "there is no such tenant"),
        (("shop/alice", "--to", "us3"), 2, "no shard of this name, shard: us3, known: main us2"),
        (("shop/alice", "--to", "main"), 2, "it lives on main already"),
        (("shop/alice", "--to", "us2", "--rate", "0"), 2, "Invalid value for '--rate'"),
        (("shop/alice", "--to", "us2", "--rate", "0", "--dry-run"), 2, "Invalid value for '--rate'"),
        (("shop/alice", "--cancel"), 4, "no move of this tenant is under way"),
        (("shop/nobody", "--cancel"), 4, "no move of this tenant is under way"),
        (("shop", "--to", "us2"), 2, "tenant"),
        (("shop", "alice", "bob", "--to", "us2"), 2, "Name one tenant: APP/USER, or APP USER."),
        (("shop/alice",), 2, "Give --to NAME"),
        (("shop/alice", "--to", "us2", "--cancel"), 2, "or --cancel alone"),
        (("shop/alice", "--to", "us2", "--wait", "--dry-run"), 2, "with --dry-run or --wait or neither"),
    ],
)
def test_a_move_that_cannot_be_is_refused(typed: tuple[str, ...], code: int, said: str) -> None:
    assert said in refusal(run("move", *typed, *BOTH), code)
    assert run("moves", *BOTH, "--json").json["moves"] == []


def test_a_second_move_is_refused_and_says_how_far_the_first_one_is() -> None:
    run("move", *TO_US2, *BOTH)
    said = refusal(run("move", *TO_US2, *BOTH), 2)
    assert said.startswith(
        "Error: the tenant moves already, tenant: shop/alice, to: us2, now: has not begun; its shard"
    )
    assert "fairlead move APP/USER --cancel" in said


def test_a_shard_whose_store_is_not_there_is_not_made_by_a_move() -> None:
    said = refusal(run("move", *TO_US2, *LOST), 3)
    assert "there is no store here, shard: us2" in said
    assert not Path("nowhere").exists()


def test_moves_of_other_shards_are_listed_if_one_cannot_be_read() -> None:
    run("move", *TO_US2, *BOTH)
    answer = run("moves", *LOST)
    assert answer.code == 3
    assert "shop/alice" in answer.out
    assert "us2: there is no store here" in answer.out
    assert [each["shard"] for each in run("moves", *LOST, "--json").json["unread"]] == ["us2"]


def test_a_move_to_a_shard_that_is_away_can_be_cancelled() -> None:
    """The request is stored at the source. The move ends once the destination answers."""
    run("move", *TO_US2, *BOTH)
    assert run("move", "shop/alice", "--cancel", *LOST).code == 0
    carry_out()
    assert run("moves", *BOTH, "--json").json["moves"][0]["state"] == "cancelled"


@pytest.mark.parametrize("typed", [(), ("--to", "us3"), ("--to", "us2", "--tenants-max", "0")])
def test_a_rebalance_with_wrong_options_is_refused(typed: tuple[str, ...]) -> None:
    refusal(run("rebalance", *typed, *BOTH), 2)
