"""The commands' output, as text and as JSON."""

from __future__ import annotations

import json
import re
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fairlead import App, Job, PermanentError, Retry
from fairlead.cli import main
from fairlead.cli.errors import NOT_DONE
from fairlead.testing import drain
from fairlead.zones.top_level import sessions
from fairlead.zones.top_level.sessions import SessionRecord
from fairlead.zones.transaction_runner import Attempt
from tests.fairlead.shell import all_commands, run, run_process

STORE = ("--store", "embedded:data")
ALICE = ("--tenant", "shop", "alice")
SHOP = """
import fairlead

app = fairlead.App("embedded:./data")


@app.handler("receipt")
def receipt(job):
    app.tenant(*job.tenant).transact(lambda tr: tr.add(("sent",), 1))


def parting(job):
    raise fairlead.PermanentError("farewell")
"""


@pytest.fixture(autouse=True)
def shop(empty_directory: Path) -> None:
    """Each test starts in a directory with an application and without a store."""
    (empty_directory / "fl_shop.py").write_text(SHOP)


def dead_letter(item_id: str | None = None) -> None:
    """Leave a dead letter of alice's in the store."""
    app = App("embedded:data")

    @app.handler("receipt")
    def send(job: Job) -> None:
        raise PermanentError("no such \x1b[31maddress")

    app.tenant("shop", "alice").enqueue("receipt", {"order": 7}, item_id=item_id)
    drain(app, raise_errors=False)
    app.close()


def enqueue(*how: object) -> Any:
    answer = run("enqueue", "receipt", '{"order": 7}', "--create", *ALICE, *STORE, "--json", *how)
    assert answer.code == 0
    return answer.json


def test_an_item_is_enqueued_shown_counted_and_cancelled() -> None:
    made = enqueue("--id", "order-7", "--delay", "5min", "--priority", 7)
    assert (made["status"], made["shard"]) == ("enqueued", "main")
    shown = run("peek", *ALICE, *STORE, "--json").json
    (item,) = shown["items"]
    assert (item["item"], item["given_id"], item["payload"]) == (made["item"], "order-7", {"order": 7})
    assert (item["state"], item["priority"], shown["count"]) == ("delayed", 7, {"receipt": 1})
    assert run("peek", "--vested", *ALICE, *STORE, "--json").json["items"] == []
    assert run("cancel", "order-7", *ALICE, *STORE, "--json").json == {"cancelled": "order-7"}
    assert run("peek", *ALICE, *STORE, "--json").json == {"items": [], "count": {}}


def test_an_item_is_cancelled_by_the_id_that_was_printed() -> None:
    made = enqueue()
    assert run("cancel", made["item"], *ALICE, *STORE).code == 0


def test_a_name_that_looks_like_an_id_is_found_too() -> None:
    name = "0123456789abcdef" * 2
    enqueue("--id", name)
    assert run("cancel", name, *ALICE, *STORE).code == 0


def test_a_second_enqueue_of_an_id_says_that_nothing_was_changed() -> None:
    enqueue("--id", "order-7")
    answer = run("enqueue", "receipt", "--id", "order-7", *ALICE, *STORE)
    assert (answer.code, "present" in answer.out, "nothing was changed" in answer.out) == (0, True, True)


def test_a_payload_comes_from_a_file_or_from_standard_input(empty_directory: Path) -> None:
    (empty_directory / "order.json").write_text('{"order": "ä"}')
    run("enqueue", "receipt", "@order.json", "--create", *ALICE, *STORE)
    run("enqueue", "receipt", "-", *ALICE, *STORE, stdin="[1, 2]")
    payloads = [item["payload"] for item in run("peek", *ALICE, *STORE, "--json").json["items"]]
    assert sorted(payloads, key=str) == [[1, 2], {"order": "ä"}]


def test_local_items_are_enqueued_and_shown_by_kind() -> None:
    assert run("enqueue", "sweep", "--local", "--create", *STORE).code == 0
    (item,) = run("peek", "--local", "sweep", *STORE, "--json").json["items"]
    assert (item["app"], item["user"], item["kind"]) == ("", "sweep", "sweep")


def test_several_stores_are_named_one_by_one() -> None:
    stores = ("--store", "eu=embedded:eu", "--store", "us=embedded:us")
    for name in ("eu", "us"):
        assert run("enqueue", "sweep", "--local", "--create", "--shard", name, *stores, "--json").json["shard"] == name
    found = run("status", *stores, "--json").json["shards"]
    assert [(each["shard"], each["depth"]) for each in found] == [("eu", {"sweep": 1}), ("us", {"sweep": 1})]


def test_an_application_brings_its_stores() -> None:
    enqueue()
    assert run("peek", *ALICE, "--app", "fl_shop:app", "--json").json["count"] == {"receipt": 1}


def test_status_names_a_kind_that_no_live_consumer_handles() -> None:
    enqueue()
    (shard,) = run("status", *STORE, "--json").json["shards"]
    assert (shard["depth"], shard["pointers"], shard["kinds_without_consumer"]) == ({"receipt": 1}, 1, ["receipt"])
    assert "no live consumer handles this kind" in run("status", *STORE).out
    app = App("embedded:data")
    signs = SessionRecord("here", 7, ["receipt"], 1, app.clock.now_us())
    app.shards["main"].transact(lambda attempt: sessions.heartbeat(attempt.tr, b"anna", signs))
    app.close()
    (shard,) = run("status", *STORE, "--json").json["shards"]
    assert (shard["kinds_without_consumer"], shard["consumers"][0]["host"]) == ([], "here")
    assert "no live consumer handles" not in run("status", *STORE).out


def test_status_names_the_loop_of_a_consumer_that_has_gone_longest_without_progress() -> None:
    """Before, the heartbeat contained the loops, and no command showed them."""
    enqueue()
    app = App("embedded:data")
    now_us = app.clock.now_us()
    loops = {"housekeeping": now_us - 1_000_000, "scanner": now_us - 7_000_000, "slot": now_us}
    signs = {b"anna": SessionRecord("here", 7, ["receipt"], 1, now_us, loops=loops),
             b"bert": SessionRecord("here", 8, ["receipt"], 1, now_us)}  # fmt: skip
    for consumer_id, presence_ in signs.items():
        app.shards["main"].transact(partial(_beat, consumer_id=consumer_id, signs=presence_))
    app.close()
    (shard,) = run("status", *STORE, "--json").json["shards"]
    anna, bert = shard["consumers"]
    assert anna["slowest_loop"] == {"name": "scanner", "no_progress_s": 7.0}
    assert bert["slowest_loop"] is None
    assert "scanner, 7.0 s" in run("status", *STORE).out


def _beat(attempt: Attempt, consumer_id: bytes, signs: SessionRecord) -> None:
    sessions.heartbeat(attempt.tr, consumer_id, signs)


def test_status_shows_the_shards_that_can_be_read_when_one_cannot(empty_directory: Path) -> None:
    enqueue()
    answer = run("status", "--store", "good=embedded:data", "--store", "bad=embedded:nowhere", "--json")
    good, bad = answer.json["shards"]
    assert (answer.code, good["depth"], "no store" in bad["error"]) == (3, {"receipt": 1}, True)
    assert not (empty_directory / "nowhere").exists()


def test_dead_letters_are_shown_retried_and_discarded() -> None:
    dead_letter(item_id="order 7")
    (item,) = run("dead-letters", "list", *STORE, "--json").json["dead_letters"]
    assert (item["app"], item["user"], item["reason"]) == ("shop", "alice", "error")
    assert "no such" in item["error"]
    assert "Traceback" in item["traceback"]
    assert run("dead-letters", "retry", item["item"], *ALICE, *STORE, "--json").json == {"retried": item["item"]}
    assert run("peek", *ALICE, *STORE, "--json").json["count"] == {"receipt": 1}
    dead_letter(item_id="order 8")
    assert run("dead-letters", "discard", "order 8", *ALICE, *STORE).code == 0
    assert run("dead-letters", "discard", "order 7", *ALICE, *STORE).code == 0
    assert run("dead-letters", "list", *STORE, "--json").json == {"dead_letters": []}


def test_control_characters_of_an_error_or_a_payload_are_spelled_out() -> None:
    dead_letter()
    enqueue("--id", "\x1b[2J")
    shown = run("dead-letters", "list", "--traceback", *STORE).out + run("peek", *ALICE, *STORE).out
    assert "\x1b" not in shown
    assert "no such \\x1b[31maddress" in shown


def test_a_store_that_is_asked_for_is_made_and_named_on_standard_error_once() -> None:
    typed = ("enqueue", "receipt", *ALICE, "--store", "embedded:new", "--create")
    first, second = run_process(*typed), run_process(*typed)
    assert (first.code, first.err) == (0, f"made a new store at {Path.cwd() / 'new'}, for shard main\n")
    assert (second.code, second.err) == (0, "")


def test_a_store_that_is_typed_is_where_the_shell_says_whatever_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "fairlead.toml").write_text('shards = "embedded:data"')
    config = ("--config", "etc/fairlead.toml")
    shown = run("config", *STORE, *config, "--json").json
    assert shown["shards.main"]["value"] == f"embedded:{tmp_path}/data"
    assert run("config", *config, "--json").json["shards.main"]["value"] == f"embedded:{tmp_path}/etc/data"
    named = run("config", "--app", "fl_shop:app", *config, "--json").json
    assert named["shards.main"]["value"] == f"embedded:{tmp_path}/etc/data"


@pytest.mark.parametrize(
    "command",
    [("enqueue", "recipt", *ALICE), ("limit", "--kind", "recipt", "--max-running", "3"), ("pause", "--kind", "recipt")],
)
def test_a_kind_without_a_handler_is_warned_of_and_the_nearest_is_named(command: tuple[str, ...]) -> None:
    """The next version may handle the kind, so this is no error."""
    enqueue()
    answer = run(*command, "--app", "fl_shop:app", "--json")
    assert (answer.code, answer.err) == (0, "Warning: fl_shop:app has no handler of recipt; nearest: receipt\n")
    assert run(*command, *STORE, "--json").err == ""


def test_a_kind_that_was_submitted_is_not_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRLEAD_SIGNING_KEY", "a key of the tests' own")
    enqueue()
    assert run("submit", "fl_shop:parting", "--kind", "recipt", "--app", "fl_shop:app").code == 0
    assert run("enqueue", "recipt", *ALICE, "--app", "fl_shop:app").err == ""
    assert run("limit", "--kind", "recipt", "--max-running", "3", "--app", "fl_shop:app").err == ""


def test_a_tenant_is_typed_as_it_is_printed() -> None:
    enqueue()
    for how in (ALICE, ("--tenant", "shop/alice"), ("--tenant=shop", "alice"), ("--tenant=shop/alice",)):
        assert run("peek", *how, *STORE, "--json").json["count"] == {"receipt": 1}
    assert run("enqueue", "receipt", "--tenant", "a/b/c", *STORE).code == 0
    assert run("peek", "--tenant", "a", "b/c", *STORE, "--json").json["count"] == {"receipt": 1}


@pytest.mark.parametrize("command", ["peek", "enqueue", "pause", "limit", "set-weight"])
def test_the_help_of_a_command_writes_tenants_as_they_are_printed(command: str) -> None:
    assert "--tenant APP/USER" in run(command, "--help").out


@pytest.mark.parametrize("how", [("--tenant", "a//b/c"), ("--tenant", "a//b", "c"), ("--tenant=a//b/c",)])
def test_a_slash_in_the_name_of_an_app_is_typed_twice(how: tuple[str, ...]) -> None:
    App("embedded:./data").tenant("a/b", "c").enqueue("receipt")
    assert run("peek", *how, *STORE, "--json").json["count"] == {"receipt": 1}


@pytest.mark.parametrize(
    "typed", [("--tenant", "alice", *STORE), (*STORE, "--tenant", "alice"), ("--tenant=alice", *STORE)]
)
def test_a_tenant_without_a_user_is_refused_with_how_to_write_it(typed: tuple[str, ...]) -> None:
    """Before, `--app` or `--store` was taken for the user, and the error was of an unexpected extra argument."""
    enqueue()
    answer = run("peek", *typed)
    assert answer.code == 2
    assert "after 'alice' the user is missing" in answer.err
    assert "--tenant APP/USER" in answer.err
    assert json.loads(run("peek", *typed, "--json").err)["error"].startswith("--tenant names an app and a user")


def test_the_environment_may_name_the_application(monkeypatch: pytest.MonkeyPatch) -> None:
    enqueue()
    monkeypatch.setenv("FAIRLEAD_APP", "fl_shop:app")
    assert run("peek", *ALICE, "--json").json["count"] == {"receipt": 1}
    assert run("status", "--store", "embedded:nowhere").code == 3, "what is typed comes first"
    assert run("config", "--json").json["shards.main"]["value"].endswith("/data")


TAKE_APP = [name for name, each in all_commands().items() if any("--app" in option.opts for option in each.params)]
ARGUMENTS = {
    "enqueue": ["receipt", "--local"], "cancel": ["a", "--local", "mail"], "result": ["a", "--local", "mail"],
    "steps": ["a", "--local", "mail"], "signal": ["a", "go", "--local", "mail"],
    "why": ["a"], "peek": ["--local", "mail"],
    "dead-letters retry": ["a", "--local", "mail"], "dead-letters discard": ["a", "--local", "mail"],
    "pause": ["--kind", "mail"], "resume": ["--kind", "mail"], "limit": ["--kind", "mail", "--max-running", "1"],
    "set-weight": ["2", "--tenant", "shop/alice"], "submit": ["shop:function", "--kind", "mail"], "backup": ["file"],
    "restore": ["file"], "replay": ["checkout"], "locks abort": ["1-00-1"],
    **{f"snapshots {name}": ["--tenant", "shop/alice"] for name in ("list", "take")},
    **{f"snapshots {name}": ["1", "--tenant", "shop/alice"] for name in ("diff", "restore", "drop")},
    "move": ["shop/alice", "--to", "us2"], "rebalance": ["--to", "us2"], "find": ["order=7"],
    **{f"records {name}": ["account"] for name in ("check", "scrub", "violations")},
    **{f"records {name}": ["account", "phone"] for name in ("add-index", "drop-index")},
}  # fmt: skip


@pytest.mark.parametrize("command", [*TAKE_APP, "run"])
def test_every_command_that_takes_an_application_takes_it_from_the_environment(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRLEAD_APP", "fl_nowhere:app")
    answer = run(*command.split(), *ARGUMENTS.get(command, []))
    assert (answer.code, "fl_nowhere" in answer.err) == (2, True), answer.err


def test_a_submitted_handler_gets_a_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRLEAD_SIGNING_KEY", "a key of the tests' own")
    enqueue()
    submit = ("submit", "fl_shop:parting", "--kind", "parting", "--timeout", "3", *STORE, "--json")
    assert run(*submit).json == {"kind": "parting", "version": 1}
    assert run(*submit).json == {"kind": "parting", "version": 2}
    app = App("embedded:data")
    app.tenant("shop", "alice").enqueue("parting")
    assert drain(app, raise_errors=False).dead_lettered == {"parting": 1}
    app.close()


def test_the_configuration_in_force_is_shown_with_its_sources(
    empty_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (empty_directory / "fairlead.toml").write_text('shards = "embedded:data"\n[consumer]\nslots = 3')
    monkeypatch.setenv("FAIRLEAD_SIGNING_KEY", "correct horse battery staple")
    shown = run("config", "--set", "consumer.workers=5", "--json").json
    assert shown["consumer.slots"] == {"value": 3, "source": "fairlead.toml"}
    assert shown["consumer.workers"] == {"value": 5, "source": "argument"}
    assert shown["consumer.lease_ms"] == {"value": 10_000, "source": "default"}
    assert shown["signing_key"] == {"value": "(hidden)", "source": "FAIRLEAD_SIGNING_KEY"}
    assert shown["shards.main"] == {"value": f"embedded:{empty_directory}/data", "source": "fairlead.toml"}
    assert "horse" not in run("config").out + str(shown)


@pytest.mark.parametrize("name", sorted(all_commands()))
def test_every_command_has_help_with_an_example_and_json(name: str) -> None:
    answer = run(*name.split(), "--help")
    assert answer.code == 0
    assert f"fairlead {name}" in answer.out.partition("Example")[2]
    assert "--json" in answer.out


def test_the_help_names_every_command_once_in_a_section_and_cuts_no_sentence() -> None:
    sections = run("--help").out.partition("\nStart:")[2].partition("Exit codes:")[0]
    assert "..." not in sections
    listed = re.findall(r"^  ([a-z-]+) +\S", sections, re.M)
    assert sorted(listed) == sorted(main.commands)


def test_an_item_that_is_nowhere_has_an_exit_code_of_its_own() -> None:
    enqueue()
    answer = run("why", "order-8", *ALICE, *STORE)
    assert answer.code == 4
    assert "None" not in answer.out
    assert run("why", "order-8", *ALICE, *STORE, "--json").code == 4


def test_top_of_a_store_that_is_not_there_ends_as_status_does() -> None:
    for command in ("top", "status"):
        answer = run(command, "--store", "embedded:nowhere", "--json")
        assert (answer.code, bool(answer.json)) == (3, True)


def test_an_argument_out_of_range_is_refused_with_its_range() -> None:
    enqueue()
    answer = run("enqueue", "receipt", *ALICE, *STORE, "--priority", "256")
    assert "Do: give priority what it takes: " in answer.err


def test_help_documents_the_exit_codes() -> None:
    shown = run("--help").out
    assert all(f"\n    {code}  " in shown for code in range(5))


def test_the_command_works_as_a_process_and_prints_results_alone_on_standard_output() -> None:
    enqueue()
    answer = run_process("enqueue", "receipt", *ALICE, *STORE, "--json")
    assert (answer.code, answer.json["status"], answer.err) == (0, "enqueued", "")


@pytest.mark.parametrize("depth", [600, 900])
def test_an_item_whose_payload_is_nested_deeper_than_the_stack_is_shown(depth: int) -> None:
    nested: Any = "bottom"
    for _ in range(depth):
        nested = [nested]
    app = App("embedded:data")
    app.tenant("shop", "alice").enqueue("receipt", nested)
    for how in ((), ("--json",)):
        shown = run("peek", *ALICE, *STORE, *how)
        assert (shown.code, "[[[[" in shown.out) == (0, True)
    assert "nested too deep to show" in shown.out

    @app.handler("receipt")
    def send(job: Job) -> None:
        raise PermanentError("no")

    drain(app, raise_errors=False)
    app.close()
    assert "[[[[" in run("dead-letters", "list", *STORE).out
    assert "nested too deep to show" in run("dead-letters", "list", *STORE, "--json").out


def test_an_infinite_number_of_an_applications_is_shown_as_json_can_hold_it() -> None:
    app = App("embedded:data")
    app.tenant("shop", "alice").enqueue("receipt", [float("inf"), 0.5])
    app.close()
    (item,) = run("peek", *ALICE, *STORE, "--json").json["items"]
    assert item["payload"] == ["inf", 0.5]


def at_80_columns(monkeypatch: pytest.MonkeyPatch, *typed: object) -> list[str]:
    """Return the output's lines on a narrow terminal."""
    monkeypatch.setattr("fairlead.cli.output.WIDTH", 80)
    lines = run(*typed).out.splitlines()
    assert max(map(len, lines)) <= 80
    return lines


def test_an_item_that_failed_is_shown_with_its_failures_on_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    app = App("embedded:data")

    @app.handler("receipt", retry=Retry(backoff=3600))
    def send(job: Job) -> None:
        raise RuntimeError("the printer is on fire")

    made = app.tenant("shop", "alice").enqueue("receipt", {"order": 7}, item_id="order-7")
    drain(app, raise_errors=False)
    app.close()
    lines = at_80_columns(monkeypatch, "peek", *ALICE, *STORE)
    assert {"errors", "expiries"} <= set(lines[0].split())
    (row,) = [line.split() for line in lines if made.item_id.hex() in line]
    assert (row[0], row[-3:]) == ("delayed", ["1", "0", made.item_id.hex()])
    shown = "\n".join(lines)
    assert "'order-7'" in shown
    assert 'receipt {"order": 7}' in shown
    assert "the printer is on fire" in " ".join(shown.split())


def test_a_dead_letter_is_shown_with_its_name_on_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    dead_letter(item_id="order 7")
    item_id = run("dead-letters", "list", *STORE, "--json").json["dead_letters"][0]["item"]
    shown = "\n".join(at_80_columns(monkeypatch, "dead-letters", "list", *STORE))
    assert item_id in shown
    assert "'order 7'" in shown
    assert "shop/alice" in shown


@pytest.mark.parametrize("moment", ["peek", "close"])
def test_a_command_that_ctrl_c_ends_at_any_moment_exits_with_130(monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    """Before, click ended it with 1, which says that something is wrong, and with the word "Aborted!"."""
    enqueue()
    close = App.close

    def interrupted(*args: Any, **named: Any) -> None:
        if moment == "close":
            close(*args)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(*((App, "close") if moment == "close" else (App, "tenant")), interrupted)
    answer = run("peek", *ALICE, *STORE)
    assert (answer.code, answer.err.splitlines()) == (130, [NOT_DONE])
    as_json = run("peek", *ALICE, *STORE, "--json")
    assert (as_json.code, json.loads(as_json.err)["error"]) == (130, NOT_DONE)
