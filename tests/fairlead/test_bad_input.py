"""Bad input on the command line: an error names the fault and the remedy, and nothing changes."""

from __future__ import annotations

import ctypes.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import lmdb
import pytest

from fairlead.testing import ManualClock
from fairlead.zones import engines
from fairlead.zones.engines.optimistic.reserved_keys import FORMAT_KEY
from fairlead.zones.keyspace import META_KEY
from tests.fairlead.shell import ROOT, Answer, everything, run, run_process

REFUSED, UNUSABLE, NOT_THERE = 2, 3, 4

STORE = ("--store", "embedded:data")
ALICE = ("--tenant", "shop", "alice")
NO_FDB = ctypes.util.find_library("fdb_c") is None
DEFAULT_CLUSTER_FILE = Path("/etc/foundationdb/fdb.cluster")


@pytest.fixture(autouse=True)
def store(empty_directory: Path) -> Iterator[Path]:
    """Each test starts with one item of alice's in the store, which must be unchanged at the end."""
    assert run("enqueue", "receipt", "7", "--id", "order-7", "--create", *ALICE, *STORE).code == 0
    before = everything("embedded:data")
    yield empty_directory
    assert everything("embedded:data") == before


@pytest.fixture
def signing_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRLEAD_SIGNING_KEY", "a key of the tests' own")


def refuses(answer: Answer, code: int, *words: str) -> None:
    """Check that a command failed with this code and a remedy; the error must contain the words, and no traceback."""
    assert answer.code == code, answer
    assert answer.out == ""
    assert "Traceback" not in answer.err
    assert "Do: " in answer.err or "Try 'fairlead" in answer.err
    missing = [word for word in words if word not in answer.err]
    assert not missing, answer.err


# --- Payloads, delays, names ---


@pytest.mark.parametrize("payload", ["{", "order: 7", "NaN", "{'order': 7}", "@nowhere.json", "[" * 100_000])
def test_a_payload_that_is_not_data(payload: str) -> None:
    refuses(run("enqueue", "receipt", payload, *ALICE, *STORE), REFUSED, "PAYLOAD")


@pytest.mark.parametrize("payload", ["1e999", "[-1e999]", '{"order": [1, 1e999]}'])
def test_a_payload_with_a_number_beyond_all_bounds(payload: str) -> None:
    refuses(run("enqueue", "receipt", payload, *ALICE, *STORE), REFUSED, "PAYLOAD", "1e999 is too large a number")


def test_a_payload_with_a_number_that_msgpack_cannot_hold() -> None:
    refuses(run("enqueue", "receipt", str(2**70), *ALICE, *STORE), REFUSED, "not plain data", "Do: enqueue what the")


def test_a_payload_that_is_too_large(store: Path) -> None:
    (store / "large.json").write_text(json.dumps("x" * 1_000_001))
    answer = run("enqueue", "receipt", "@large.json", *ALICE, *STORE)
    refuses(answer, REFUSED, "payload too large", "bytes_max: 1000000", "Do: store the data beside the item")


@pytest.mark.parametrize("delay", ["-1", "-5min", "3651d", "99999999999"])
def test_a_delay_that_is_negative_or_absurd(delay: str) -> None:
    answer = run("enqueue", "receipt", "--delay", delay, *ALICE, *STORE)
    refuses(answer, REFUSED, "delay", "0 to 315,360,000 s")


@pytest.mark.parametrize(("typed", "shown"), [("-1", "-1 s"), ("-5min", "-300 s"), ("3651d", "315,446,400 s")])
def test_a_duration_out_of_range_is_shown_in_seconds(typed: str, shown: str) -> None:
    """A negative one was shown as "datetime.timedelta(days=-1, seconds=86399)"."""
    for command in (("enqueue", "receipt", "--delay", typed), ("snapshots", "take", "--keep", typed)):
        refuses(run(*command, *ALICE, *STORE), REFUSED, f"value: {shown},")


@pytest.mark.parametrize("delay", ["soon", "", "5 weeks", "1e3", "9" * 400])
def test_a_delay_that_is_no_duration(delay: str) -> None:
    refuses(run("enqueue", "receipt", "--delay", delay, *ALICE, *STORE), REFUSED, "no duration", "90s")


@pytest.mark.parametrize(
    "command", [("enqueue", "receipt"), ("peek",), ("cancel", "order-7"), ("dead-letters", "retry", "order-7")]
)
@pytest.mark.parametrize(
    "names, wrong",
    [(("", "alice"), "app"), (("shop", ""), "user"), (("x" * 97, "a"), "app"), (("shop", "ä" * 49), "user")],
)
def test_a_tenant_name_that_is_empty_or_too_long(command: tuple[str, ...], names: tuple[str, str], wrong: str) -> None:
    refuses(run(*command, "--tenant", *names, *STORE), REFUSED, f"argument: {wrong}", "1 to 96 bytes")


def test_a_tenant_name_that_is_not_text() -> None:
    answer = run_process("enqueue", "receipt", "--tenant", "shop", b"\xff\xfe", *STORE)
    refuses(answer, REFUSED, "argument: user", "1 to 96 bytes in UTF-8")


@pytest.mark.parametrize(
    "how, word", [(("--priority", "256"), "priority"), (("--id", ""), "item_id"), (("--zone", ""), "zone"),
                  (("--unique-for", "-1"), "unique_for")]
)  # fmt: skip
def test_other_arguments_out_of_range(how: tuple[str, str], word: str) -> None:
    refuses(run("enqueue", "receipt", *how, *ALICE, *STORE), REFUSED, f"argument: {word}")


def test_an_item_needs_a_tenant_or_must_be_local() -> None:
    refuses(run("enqueue", "receipt", *STORE), REFUSED, "--tenant APP/USER", "--local")
    refuses(run("enqueue", "receipt", "--local", *ALICE, *STORE), REFUSED, "--tenant APP/USER", "--local")
    refuses(run("peek", *STORE), REFUSED, "--tenant APP/USER", "--local KIND")
    refuses(run("enqueue", "receipt", "--shard", "main", *ALICE, *STORE), REFUSED, "--shard goes with --local")
    refuses(run("enqueue", "sweep", "--local", "--shard", "eu", *STORE), REFUSED, "no shard of this name", "main")


# --- Stores ---


def test_a_store_that_is_a_file(store: Path) -> None:
    (store / "file").write_text("mine")
    for command in (("enqueue", "receipt"), ("peek",)):
        answer = run(*command, *ALICE, "--store", "embedded:file")
        refuses(answer, UNUSABLE, "the path is a file", str(store / "file"), "Do: Name a directory")
    assert (store / "file").read_text() == "mine"


@pytest.mark.parametrize(
    "command",
    [("peek",), ("cancel", "order-7"), ("dead-letters", "retry", "order-7"), ("dead-letters", "discard", "order-7")],
)
def test_a_command_that_only_reads_does_not_make_a_missing_store(store: Path, command: tuple[str, ...]) -> None:
    refuses(run(*command, *ALICE, "--store", "embedded:dta"), UNUSABLE, "no store here", "dta", "Do: check the url")
    assert not (store / "dta").exists()


def test_enqueue_does_not_make_a_missing_store(store: Path) -> None:
    """Before, a typo in the path made a store that no fleet serves, and the command printed `enqueued`."""
    answer = run("enqueue", "receipt", *ALICE, "--store", "embedded:dta")
    refuses(answer, UNUSABLE, "no store here", "dta", "fairlead enqueue --create")
    assert not (store / "dta").exists()


def test_submit_does_not_make_a_missing_store(store: Path, signing_key: None) -> None:
    write("fl_shop", "def f(job): ...")
    refuses(run("submit", "fl_shop:f", "--kind", "k", "--store", "embedded:dta"), UNUSABLE, "no store here", "dta")
    assert not (store / "dta").exists()


@pytest.mark.parametrize(
    "command",
    [("enqueue", "receipt", *ALICE), ("peek", *ALICE), ("cancel", "order-7", *ALICE), ("dead-letters", "list"),
     ("status",), ("check",), ("backup", "file"), ("restore", "file"), ("submit", "fl_shop:f", "--kind", "k")],
)  # fmt: skip
def test_a_store_in_memory_which_would_end_with_the_command(store: Path, command: tuple[str, ...]) -> None:
    write("fl_shop", "app = fairlead.App('memory:')\ndef f(job): ...")
    for target in (("--store", "memory:"), ("--app", "fl_shop:app")):
        refuses(run(*command, *target), REFUSED, "ends with the process", "main", "Do: name a store on disk")
    assert not (store / "file").exists()


def test_a_shard_of_a_newer_format(store: Path) -> None:
    db = engines.open("embedded:newer", clock=ManualClock(), random=Random(1))
    engines.transact(db, lambda tr: tr.set(META_KEY, b"\x02new"))
    db.close()
    answer = run("enqueue", "receipt", *ALICE, "--store", "embedded:newer")
    refuses(answer, UNUSABLE, "cannot be used as a shard", "shard: main", "upgrade")


def test_a_store_of_a_newer_format(store: Path) -> None:
    engines.open("embedded:newer", clock=ManualClock(), random=Random(1)).close()
    with lmdb.open("newer") as env, env.begin(write=True) as txn:
        txn.put(FORMAT_KEY, b"999")
    answer = run("enqueue", "receipt", *ALICE, "--store", "embedded:newer")
    refuses(answer, UNUSABLE, "written by a newer version", "format: 999", "Do: Use the version that wrote it")


def in_small_disk(script: str) -> Answer:
    """Run a script in a user namespace with a disk of 2 MB at ./disk; `fairlead` is the command."""
    if subprocess.run(["unshare", "-Urm", "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine refuses user namespaces (unshare -Urm), so no disk can be filled or made read-only")
    Path("disk").mkdir()
    shell = f'fairlead() {{ {sys.executable} -m fairlead "$@"; }}; mount -t tmpfs -o size=2m none disk; {script}'
    ended = subprocess.run(
        ["unshare", "-Urm", "bash", "-c", shell],
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=60,
        check=False,
    )
    return Answer(ended.returncode, ended.stdout.decode(), ended.stderr.decode())


def test_a_store_on_a_read_only_disk() -> None:
    answer = in_small_disk(
        "fairlead enqueue receipt --tenant shop alice --create --store embedded:disk/data >&2;"
        "mount -o remount,ro disk; fairlead enqueue receipt --tenant shop alice --store embedded:disk/data"
    )
    refuses(answer, UNUSABLE, "the path is read-only", "Do: Make it writable")


def test_a_store_on_a_full_disk_keeps_what_it_had() -> None:
    answer = in_small_disk(
        "fairlead enqueue receipt --tenant shop alice --create --store embedded:disk/data >&2;"
        "head -c 900000 /dev/zero | tr '\\0' x | sed 's/^/\"/; s/$/\"/' > large.json;"
        "for n in 1 2 3; do fairlead enqueue receipt @large.json --tenant shop bob --store embedded:disk/data >&2;"
        "code=$?; done; fairlead peek --tenant shop alice --store embedded:disk/data --json >&2; exit $code"
    )
    refuses(answer, UNUSABLE, "the disk is full", "Do: Free some space", '"count": {"receipt": 1}')


@pytest.mark.skipif(not NO_FDB, reason="this machine has FoundationDB's client library")
def test_a_missing_foundationdb_client_library() -> None:
    answer = run("enqueue", "receipt", *ALICE, "--store", "fdb:")
    refuses(answer, UNUSABLE, "client library is missing", "Do: Install the package foundationdb-clients")


@pytest.mark.skipif(NO_FDB, reason="needs FoundationDB's client library, and no cluster")
def test_a_cluster_that_does_not_answer(store: Path) -> None:
    (store / "fdb.cluster").write_text("nobody:here@127.0.0.1:1")
    answer = run_process("enqueue", "receipt", *ALICE, "--store", "fdb:fdb.cluster")
    refuses(answer, UNUSABLE, "the cluster does not answer", "Do: Check with `fdbcli")


@pytest.mark.skipif(NO_FDB, reason="needs FoundationDB's client library, and no cluster")
def test_a_file_that_is_no_cluster_file(store: Path) -> None:
    (store / "fdb.cluster").write_text("[main]\nsomething else\n")
    answer = run_process("enqueue", "receipt", *ALICE, "--store", "fdb:fdb.cluster")
    refuses(answer, UNUSABLE, "the cluster file cannot be used", "Do: Check the path and the content")


@pytest.mark.skipif(NO_FDB or DEFAULT_CLUSTER_FILE.exists(), reason="needs the client library, and no default cluster")
def test_a_machine_without_a_default_cluster_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FDB_CLUSTER_FILE", raising=False)
    answer = run_process("enqueue", "receipt", *ALICE, "--store", "fdb:")
    refuses(answer, UNUSABLE, "no default cluster file", "Do: Name the cluster file")


# --- Configuration ---


@pytest.mark.parametrize("command", [("config",), ("status",), ("enqueue", "receipt", *ALICE)])
def test_an_unknown_setting(store: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]) -> None:
    (store / "fairlead.toml").write_text('shards = "embedded:data"\n[consumer]\nleese_ms = 7')
    refuses(run(*command), REFUSED, "consumer.leese_ms", "fairlead.toml", "nearest: consumer.lease_ms")
    (store / "fairlead.toml").unlink()
    monkeypatch.setenv("FAIRLEAD_LOG_LEVLE", "info")
    refuses(run(*command), REFUSED, "FAIRLEAD_LOG_LEVLE", "nearest: log_level")


def test_a_setting_out_of_range_or_of_the_wrong_type() -> None:
    refuses(run("config", "--set", "consumer.slots=0"), REFUSED, "consumer.slots", "1 to 1,000", "argument")
    refuses(run("config", "--set", "consumer.slots=many"), REFUSED, "consumer.slots", "a whole number")
    refuses(run("config", "--set", "consumer.slots"), REFUSED, "KEY=VALUE")


def test_settings_that_contradict_each_other() -> None:
    refuses(run("config", "--set", "consumer.managers=3"), REFUSED, "managers: 3", "workers: 2", "each manager needs")
    refuses(run("config", "--set", "zones.max_item_lease_ms=9000"), REFUSED, "consumer.lease_ms", "max_item_lease_ms")


def test_stores_that_are_named_twice_or_not_at_all(store: Path) -> None:
    refuses(run("status"), REFUSED, "no shards are configured", "--store")
    refuses(run("status", *STORE, "--app", "fl_shop:app"), REFUSED, "give one of them")
    refuses(run("status", *STORE, "--store", "embedded:other"), REFUSED, "Several stores need names")
    refuses(run("status", "--store", "a=memory:", "--store", "a=memory:"), REFUSED, "same name")
    refuses(run("status", "--store", "a=embedded:x", "--store", "b=embedded:./x"), REFUSED, "are the same store")
    refuses(run("status", "--store", "embeded:data"), REFUSED, "nearest: embedded:")
    refuses(run("status", "--config", "nowhere.toml"), REFUSED, "nowhere.toml", "No such file")


# --- Applications ---


def write(name: str, text: str) -> None:
    Path(f"{name}.py").write_text(f"import fairlead\napp = fairlead.App('embedded:data')\n{text}\n")


@pytest.mark.parametrize(
    "reference, words",
    [("fl_nowhere:app", ["no module fl_nowhere"]), ("fl_shop:ap", ["no attribute ap", "nearest: app"]),
     ("fl_shop:number", ["not a fairlead.App", "apps: app"]), ("fl_shop", ["no colon"])],
)  # fmt: skip
def test_a_module_without_an_app(reference: str, words: list[str]) -> None:
    write("fl_shop", "number = 7")
    refuses(run("run", reference, "--runtime", "threads"), REFUSED, "MODULE:ATTRIBUTE", *words)
    refuses(run("status", "--app", reference), REFUSED, *words)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def f(:\n    pass", ["SyntaxError", "fl_broken.py", "line 3", "def f(:"]),
        ("import fl_nowhere", ["No module named 'fl_nowhere'", "fl_broken.py", "line 3"]),
        ("def ratio():\n    return 1 / 0\nratio()", ["ZeroDivisionError: division by zero", "line 5", "in ratio"]),
        ("import json\njson.loads('{')", ["JSONDecodeError", "fl_broken.py", "line 4"]),
    ],
)
def test_a_module_that_cannot_be_imported_is_shown_by_its_own_frames(text: str, words: list[str]) -> None:
    """Before, it was a traceback of some twenty frames, of which one or none was the user's."""
    write("fl_broken", text)
    for command in (("run", "fl_broken:app", "--runtime", "threads"), ("status", "--app", "fl_broken:app")):
        answer = run(*command)
        refuses(answer, REFUSED, "the module cannot be imported", "module: fl_broken", *words)
        assert not any(word in answer.err for word in ("importlib", "fairlead/cli", "click/core.py")), answer.err
        assert answer.err.count("\n") < 14
        sys.modules.pop("fl_broken", None)
    answer = run("status", "--app", "fl_broken:app", "--json")
    assert answer.error["fields"]["module"] == "fl_broken"
    assert all(word in answer.error["fields"]["traceback"] for word in words)


def test_an_error_of_fairlead_at_import_is_shown_unchanged() -> None:
    write("fl_broken", "app.handler('receipt', timeout=-1)(print)")
    refuses(run("status", "--app", "fl_broken:app"), REFUSED, "argument: timeout")


def test_a_fleet_on_ray_where_ray_is_not_installed() -> None:
    write("fl_shop", "")
    Path("ray.py").write_text("raise ModuleNotFoundError(\"No module named 'ray'\", name='ray')")
    answer = run_process("run", "fl_shop:app")
    refuses(answer, REFUSED, "Ray is not installed", "pip install", "--runtime threads")


def test_a_handler_registered_twice() -> None:
    write("fl_twice", "app.handler('receipt')(print)\napp.handler('receipt')(len)")
    answer = run("run", "fl_twice:app", "--runtime", "threads")
    refuses(answer, REFUSED, "has a handler already", "kind: receipt", "builtins.print", "builtins.len", "Do: give one")


def test_a_transactional_handler_that_is_async() -> None:
    write("fl_async", "async def f(job): ...\napp.handler('receipt', transactional=True)(f)")
    answer = run("run", "fl_async:app", "--runtime", "threads")
    refuses(
        answer, REFUSED, "only a plain function can be transactional", "fl_async.f", "async function", "Do: make it"
    )


def test_a_transactional_handler_that_is_a_ray_function() -> None:
    write("fl_remote", "import ray\n@ray.remote\ndef f(job): ...\napp.handler('receipt', transactional=True)(f)")
    answer = run_process("run", "fl_remote:app", "--runtime", "threads")
    refuses(answer, REFUSED, "only a plain function can be transactional", "fl_remote.f", "Ray remote function")


def test_a_submitted_handler_that_cannot_be_one(signing_key: None) -> None:
    write("fl_shop", "number = 7\nlock = __import__('threading').Lock()\ndef f(job): return lock")
    refuses(run("submit", "fl_shop:number", "--kind", "k", *STORE), REFUSED, "argument: handler")
    refuses(run("submit", "fl_shop:g", "--kind", "k", *STORE), REFUSED, "no attribute g")
    refuses(run("submit", "fl_shop:f", "--kind", "k", *STORE), REFUSED, "cannot be packed", "lock", "Do: create it")
    refuses(run("submit", "fl_shop:f", "--kind", "", *STORE), REFUSED, "argument: kind")


def test_a_handler_is_not_submitted_without_a_signing_key() -> None:
    """The error names the command that makes the key, and the processes that need it."""
    write("fl_shop", "def f(job): ...")
    answer = run("submit", "fl_shop:f", "--kind", "k", *STORE)
    refuses(answer, REFUSED, "no signing_key", "export FAIRLEAD_SIGNING_KEY=$(openssl rand -hex 32)", "the fleet")


def test_a_fleet_of_processes_around_a_store_in_memory() -> None:
    write("fl_shop", "app = fairlead.App('memory:')")
    refuses(run("run", "fl_shop:app", "--runtime", "ray"), REFUSED, "memory:", "--runtime threads")
    refuses(run("run", "fl_shop:app", "--runtime", "threads", "--address", "auto"), REFUSED, "--address goes with")


# --- Items that have ended ---


@pytest.mark.parametrize("item", ["order-8", "0123456789abcdef" * 2])
def test_completing_what_is_gone(item: str) -> None:
    refuses(
        run("cancel", item, *ALICE, *STORE), NOT_THERE,
        f"the item is gone: completed, cancelled, a dead letter, or never enqueued here, item: {item}",
        "Do: `fairlead why ITEM` says how it ended",
    )  # fmt: skip
    refuses(
        run("dead-letters", "retry", item, *ALICE, *STORE),
        NOT_THERE,
        "no dead letter",
        "Do: look for it with `fairlead dead-letters list`",
    )
    refuses(run("dead-letters", "discard", item, *ALICE, *STORE), NOT_THERE, "no dead letter")


def test_an_item_of_another_tenant() -> None:
    refuses(run("cancel", "order-7", "--tenant", "shop", "bob", *STORE), NOT_THERE, "the item is gone")


# --- Output for programs ---


def test_with_json_an_error_is_one_object_on_standard_error() -> None:
    error = run("cancel", "order-8", *ALICE, *STORE, "--json").error
    assert error["error"].startswith("the item is gone")
    assert set(error["fields"]) == {"item", "tenant", "zone"}
    assert "fairlead why ITEM" in error["do"]


def test_as_a_process_an_error_ends_with_its_code() -> None:
    refuses(run_process("cancel", "order-8", *ALICE, *STORE), NOT_THERE, "the item is gone")
    refuses(run_process("peek", *ALICE, "--store", "embedded:dta"), UNUSABLE, "no store here")
    refuses(run_process("enqueue", "receipt", "{", *ALICE, *STORE), REFUSED, "PAYLOAD")
    refuses(run_process("config", env={"FAIRLEAD_CONSUMER__SLOTS": "0"}), REFUSED, "FAIRLEAD_CONSUMER__SLOTS")


def test_a_text_where_a_number_belongs_is_shown_as_the_text_it_is(store: Path) -> None:
    (store / "fairlead.toml").write_text('shards = "embedded:data"\n[consumer]\nslots = "32"')
    refuses(run("config"), REFUSED, "value: '32', ", "allowed: a whole number")


def test_status_of_a_store_that_is_missing_says_what_to_do() -> None:
    answer = run("status", "--store", "embedded:dta")
    assert (answer.code, "no store here, shard: main, url: embedded:" in answer.out) == (UNUSABLE, True)
    assert "  Do: check the url" in answer.out
    (shard,) = run("status", "--store", "embedded:dta", "--json").json["shards"]
    assert (shard["error"], shard["do"][:13]) == ("there is no store here", "check the url")
    answer = run("status", "--store", "embedded:data/data.mdb")
    assert ("remedy" in answer.out, "  Do: Name a directory" in answer.out) == (False, True)


@pytest.mark.parametrize(
    "typed, words",
    [(("enqueue", "receipt", "{"), "PAYLOAD"), (("peek", "--limit", "0"), "--limit"), (("peek", "--lim", "7"), "--lim"),
     (("cancel",), "ITEM"), (("serve",), "serve")],
)  # fmt: skip
def test_with_json_wrong_usage_is_one_object_too(typed: tuple[str, ...], words: str) -> None:
    answer = run(*typed, "--json")
    assert (answer.code, words in answer.error["error"], "--help" in answer.error["do"]) == (REFUSED, True, True)
