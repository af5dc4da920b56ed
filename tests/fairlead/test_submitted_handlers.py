"""A running fleet loads submitted handlers, but only those that it trusts."""

from __future__ import annotations

import pickle
import sys
import threading
from pathlib import Path
from random import Random
from typing import Any

import pytest

import fairlead.actors.execution.submitted_handlers
from fairlead import App, BadArgument, Config, Retry, SubmissionsOff
from fairlead.actors.execution.submitted_handlers import HandlerNotPacked, SubmittedHandlers, pack_handler, submit
from fairlead.actors.handlers import Form, Handler, NotTransactional, Registry
from fairlead.actors.runtime.supervisor import STALL_US, Supervisor
from fairlead.error_text import remedy_of
from fairlead.loading import load_attribute
from fairlead.testing import ManualClock
from fairlead.zones import submitted_handlers
from fairlead.zones.keyspace import HANDLER, ROOT, pack_int, pack_text, range_end
from fairlead.zones.records import HandlerRecord, encode
from fairlead.zones.shard import Shard
from fairlead.zones.transaction_runner import Attempt

KEY = b"correct horse battery staple"
OTHER_KEY = b"another horse battery staple"
HANDLERS = (ROOT + pack_int(HANDLER), range_end(ROOT + pack_int(HANDLER)))


@pytest.fixture
def shards() -> dict[str, Shard]:
    app = App({"eu": "memory:", "us": "memory:"}, clock=ManualClock(), random=Random(1))
    return dict(app.shards)


def worker(key: bytes = KEY, *, allow: bool = True) -> SubmittedHandlers:
    """Return the handlers that a worker of a fleet with this key loads."""
    return SubmittedHandlers(Registry(), key, allow)


def double(job: Any) -> int:
    return 2 * int(job)


def test_a_worker_loads_a_handler_with_its_options(shards: dict[str, Shard]) -> None:
    code = pack_handler("double", double, timeout=3, retry=Retry(attempts=2), max_running=4, drop=True)
    assert submit(shards, "double", code, key=KEY) == 1
    loaded = worker()
    assert loaded.load(shards) == []
    handler = loaded.registry.handlers["double"]
    assert (handler.function(21), handler.form) == (42, Form.PLAIN)
    assert (handler.timeout_ms, handler.retry.attempts, handler.max_running, handler.drop) == (3000, 2, 4, True)


def test_a_loop_that_imports_slow_code_is_not_taken_for_stalled(
    shards: dict[str, Shard], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, an import of ten seconds failed the actor, and again after each restart."""
    failures: list[str] = []
    supervisor = Supervisor(failures.append, lambda thread_id: "")
    unpacked = fairlead.actors.execution.submitted_handlers._unpacked

    def slowly(record: HandlerRecord) -> Any:
        for _ in range(3):
            supervisor.check_loops(STALL_US)
        return unpacked(record)

    monkeypatch.setattr(fairlead.actors.execution.submitted_handlers, "_unpacked", slowly)
    submit(shards, "double", pack_handler("double", double), key=KEY)
    loaded = worker()

    def load() -> None:
        loaded.load(shards)

    supervisor.supervised("loading", load)()
    assert failures == []
    assert list(loaded.registry.handlers) == ["double"]


def test_a_newer_version_replaces_the_older_and_is_loaded_once(shards: dict[str, Shard]) -> None:
    loaded = worker()
    submit(shards, "double", pack_handler("double", double), key=KEY)
    loaded.load(shards)
    first = loaded.registry.handlers["double"]
    loaded.load(shards)
    assert loaded.registry.handlers["double"] is first
    assert submit(shards, "double", pack_handler("double", lambda job: 3), key=KEY) == 2
    loaded.load(shards)
    assert loaded.registry.handlers["double"].function(0) == 3


def test_a_load_during_another_threads_import_has_the_handler_too(
    shards: dict[str, Shard], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, the second thread found no handler, and its worker dropped the items that it held."""
    submit(shards, "double", pack_handler("double", double), key=KEY)
    loaded = worker()
    unpack = fairlead.actors.execution.submitted_handlers._unpacked
    importing, second_is_back = threading.Event(), threading.Event()

    def import_slowly(record: HandlerRecord) -> Handler:
        importing.set()
        second_is_back.wait(0.3)  # It cannot be, while it waits for this import.
        return unpack(record)

    monkeypatch.setattr(fairlead.actors.execution.submitted_handlers, "_unpacked", import_slowly)
    first = threading.Thread(target=loaded.load, args=(shards,))
    first.start()
    assert importing.wait(10)
    loaded.load(shards)
    found = loaded.registry.handlers.get("double")
    second_is_back.set()
    first.join()
    assert found is not None


def test_of_several_shards_the_highest_version_counts(shards: dict[str, Shard]) -> None:
    """A submitter knew only one shard."""
    for _ in range(3):
        submit({"eu": shards["eu"]}, "double", pack_handler("double", double), key=KEY)
    assert submit({"us": shards["us"]}, "double", pack_handler("double", lambda job: 0), key=KEY) == 1
    loaded = worker()
    loaded.load(shards)
    assert loaded.registry.handlers["double"].function(21) == 42
    assert submit(shards, "double", pack_handler("double", lambda job: 5), key=KEY) == 4
    loaded.load(shards)
    assert loaded.registry.handlers["double"].function(21) == 5


def test_a_signed_handler_is_loaded_by_a_fleet_with_its_key(shards: dict[str, Shard]) -> None:
    submit(shards, "double", pack_handler("double", double), key=KEY)
    loaded = worker(KEY)
    assert loaded.load(shards) == []
    assert list(loaded.registry.handlers) == ["double"]


@pytest.mark.parametrize("signed_with", [b"", KEY])
def test_a_fleet_without_a_key_loads_nothing_and_says_so_once(shards: dict[str, Shard], signed_with: bytes) -> None:
    """Before, a fleet without a key ran any handler in the store."""
    submit(shards, "double", b"not even a pickle", key=signed_with)
    loaded = worker(b"")
    (refused,) = loaded.load(shards)
    assert "no signing key" in refused.reason
    submit(shards, "triple", b"not even a pickle", key=signed_with)
    assert (loaded.load(shards), list(loaded.registry)) == ([], [])


@pytest.mark.parametrize("key, reason", [(b"", "it is not signed"), (OTHER_KEY, "signing key")])
def test_an_unsigned_or_wrongly_signed_handler_is_not_even_unpickled(
    shards: dict[str, Shard], key: bytes, reason: str
) -> None:
    submit(shards, "double", b"not even a pickle", key=key)
    loaded = worker(KEY)
    (refused,) = loaded.load(shards)
    assert (refused.kind, refused.version) == ("double", 1)
    assert reason in refused.reason
    assert list(loaded.registry) == []


@pytest.mark.parametrize("change", [{"kind": "pay"}, {"version": 9}, {"code": b"other"}])
def test_a_signature_is_good_for_one_kind_version_and_code_only(
    shards: dict[str, Shard], change: dict[str, Any]
) -> None:
    """A writer of the store can copy a record, and must gain nothing by it."""
    submit(shards, "double", pack_handler("double", double), key=KEY)
    (good,) = [
        each for shard in shards.values() for each in shard.transact(lambda at: submitted_handlers.listing(at.tr))
    ]
    forged = {"kind": good.kind, "version": good.version, "code": good.code, **change}

    def forge(attempt: Attempt) -> None:
        kind, code = forged["kind"], forged["code"]
        submitted_handlers.submit(
            attempt.tr, kind, code, sign=lambda *_: good.signature, above=forged["version"] - 1, now_us=1
        )

    for shard in shards.values():
        shard.transact(forge)
    assert any("signing key" in each.reason for each in worker(KEY).load(shards))


def test_an_untrusted_handler_does_not_hide_a_trusted_one(shards: dict[str, Shard]) -> None:
    """Before, an unsigned handler with the highest version number hid the fleet's own."""
    loaded = worker(KEY)
    shards["us"].transact(
        lambda at: submitted_handlers.submit(
            at.tr, "double", b"", sign=lambda *_: b"forged", above=2**40, now_us=at.now_us
        )
    )
    submit({"eu": shards["eu"]}, "double", pack_handler("double", double), key=KEY)
    (refused,) = loaded.load(shards)
    assert refused.version == 2**40 + 1
    assert loaded.registry.handlers["double"].function(21) == 42
    assert loaded.load(shards) == []  # logged once


def test_a_running_worker_does_not_go_back_to_an_older_version(shards: dict[str, Shard]) -> None:
    """Its signature stays valid; but the worker knows which version it has loaded."""
    submit(shards, "double", pack_handler("double", lambda job: 0), key=KEY)
    (old,) = [
        each for shard in shards.values() for each in shard.transact(lambda at: submitted_handlers.listing(at.tr))
    ]
    submit(shards, "double", pack_handler("double", double), key=KEY)
    loaded = worker(KEY)
    loaded.load(shards)

    def put_back(attempt: Attempt) -> None:
        attempt.tr.clear_range(*HANDLERS)
        attempt.tr.set(HANDLERS[0] + pack_text("double") + pack_int(old.version), encode(old))

    for shard in shards.values():
        shard.transact(put_back)
    assert loaded.load(shards) == []
    assert loaded.registry.handlers["double"].function(21) == 42


def test_a_fleet_that_does_not_allow_them_loads_none(shards: dict[str, Shard]) -> None:
    submit(shards, "double", pack_handler("double", double), key=KEY)
    loaded = worker(allow=False)
    assert loaded.load(shards) == []
    assert list(loaded.registry) == []


def test_the_applications_own_handler_stays(shards: dict[str, Shard]) -> None:
    app = App("memory:")
    app.handler("double")(print)
    submit(shards, "double", pack_handler("double", double), key=KEY)
    loaded = SubmittedHandlers(app.registry, KEY, True)
    (refused,) = loaded.load(shards)
    assert "of its own" in refused.reason
    assert app.registry.handlers["double"].function is print
    assert loaded.load(shards) == []  # logged once


def test_code_that_cannot_be_loaded_is_refused_and_does_not_affect_others(shards: dict[str, Shard]) -> None:
    submit(shards, "broken", b"nonsense", key=KEY)
    submit(shards, "double", pack_handler("double", double), key=KEY)
    loaded = worker()
    (refused,) = loaded.load(shards)
    assert refused.kind == "broken"
    assert "cannot be loaded here" in refused.reason
    assert set(loaded.registry.handlers) == {"double"}


class Exits:
    """Code whose unpickling calls sys.exit, as a module without a required setting may."""

    def __reduce__(self) -> Any:
        return sys.exit, ("API_KEY is not set",)


def test_code_that_exits_when_it_is_loaded_is_refused_as_any(shards: dict[str, Shard]) -> None:
    """Before, SystemExit ended the housekeeping of every consumer, and again after each restart."""
    submit(shards, "exits", pickle.dumps(Exits()), key=KEY)
    submit(shards, "double", pack_handler("double", double), key=KEY)
    loaded = worker()
    (refused,) = loaded.load(shards)
    assert refused.kind == "exits"
    assert "SystemExit: API_KEY is not set" in refused.reason
    assert set(loaded.registry.handlers) == {"double"}


def test_a_function_travels_with_what_it_refers_to_in_its_module(
    shards: dict[str, Shard], empty_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The module is on the submitter's disk only."""
    (empty_directory / "fl_reports.py").write_text(
        "FACTOR = 3\ndef times(x): return FACTOR * x\ndef run(job): return times(job)"
    )
    monkeypatch.syspath_prepend(str(empty_directory))
    function = load_attribute("fl_reports:run")
    submit(shards, "report", pack_handler("report", function), key=KEY)
    monkeypatch.delitem(sys.modules, "fl_reports")
    (empty_directory / "fl_reports.py").unlink()
    loaded = worker()
    assert loaded.load(shards) == []
    assert loaded.registry.handlers["report"].function(7) == 21


def test_what_cannot_travel_or_be_a_handler_is_refused_before_anything_is_stored() -> None:
    app = App(config=Config(shards={"main": "memory:"}, signing_key=KEY.decode()))
    lock = threading.Lock()

    async def remote(job: Any) -> None: ...

    with pytest.raises(HandlerNotPacked):
        app.submit(lambda job: lock, kind="double")
    with pytest.raises(BadArgument):
        app.submit(double, kind="")
    with pytest.raises(BadArgument):
        app.submit(double, kind="double", timeout=-1)
    with pytest.raises(NotTransactional):
        app.submit(remote, kind="double", transactional=True)
    assert app.shards["main"].transact(lambda attempt: submitted_handlers.listing(attempt.tr)) == []


def test_submitting_is_refused_where_it_is_turned_off() -> None:
    app = App(config=Config(shards={"main": "memory:"}, signing_key=KEY.decode(), submissions=False))
    with pytest.raises(SubmissionsOff):
        app.submit(double, kind="double")


def test_submitting_without_a_key_is_refused_with_the_command_that_makes_one() -> None:
    app = App(config=Config(shards={"main": "memory:"}))
    with pytest.raises(SubmissionsOff) as refused:
        app.submit(double, kind="double")
    assert "FAIRLEAD_SIGNING_KEY=$(openssl rand -hex 32)" in remedy_of(refused.value)
    assert app.shards["main"].transact(lambda attempt: submitted_handlers.listing(attempt.tr)) == []


def test_an_application_signs_with_its_key() -> None:
    app = App(config=Config(shards={"main": "memory:"}, signing_key=KEY.decode()))
    app.submit(double, kind="double")
    assert worker(KEY).load(app.shards) == []
    assert len(worker(OTHER_KEY).load(app.shards)) == 1
