"""A user's application in simulated worlds: its handlers run unmodified, and its checks find their faults."""

from __future__ import annotations

import faulthandler
import gc
import itertools
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from textwrap import dedent, indent
from typing import Any, cast

import pytest

from fairlead import App
from fairlead.actors.execution.runner import run_handler
from fairlead.app_simulation import machine
from fairlead.simulation import application, shrink
from fairlead.zones.errors import BadArgument
from tests.fairlead.shell import ROOT, Answer, run, run_process

PATIENCE_S = 60.0

HEAD = """
import asyncio, itertools, os, random, threading, time, uuid
from time import sleep
import fairlead

app = fairlead.App("embedded:./data")
alice = app.tenant("shop", "alice")
"""

Write = Callable[[str], str]
_NUMBERS = itertools.count()  # Each process loads an application of one name once.


@pytest.fixture(autouse=True)
def _shrink_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shrink, "RUNS_MAX", 12)


@pytest.fixture
def write(empty_directory: Path) -> Write:
    """Write a module with an application, and return its reference."""

    def write_one(text: str) -> str:
        name = f"fl_app{next(_NUMBERS)}"
        (empty_directory / f"{name}.py").write_text(HEAD + dedent(text), encoding="utf-8")
        return f"{name}:app"

    return write_one


def simulate(reference: str, *typed: object) -> Answer:
    return run("simulate", reference, "--processes", 1, *typed)


def seeds(count: int, *, faults: str = "failing handlers, kills, conflicts", items: int = 20) -> tuple[object, ...]:
    return ("--seeds", count, "--faults", faults, "--size", f"items={items}")


CHARGE = """
    @app.simulation.request
    def order(random):
        alice.enqueue("charge")

    @app.simulation.check
    def charged_as_often_as_ordered(tenants):
        for tenant in tenants:
            charged, done = tenant.transact(lambda tr: (number(tr, "charged"), number(tr, "done")))
            assert charged == done, f"{charged} charges for {done} orders"

    def number(tr, name):
        return int.from_bytes(tr.get((name,)) or b"", "little")
"""
TWICE = """
    @app.handler("charge")
    def charge(job):
        job.transact(lambda tr: tr.add(("charged",), 1))
        time.sleep(0.3)
        def end(tr):
            tr.add(("done",), 1)
            job.complete_in(tr)
        job.transact(end)
"""
ONCE = """
    @app.handler("charge", transactional=True)
    def charge(job, tr):
        tr.add(("charged",), 1)
        tr.add(("done",), 1)
"""


# --- Findings ---


def test_a_handler_that_charges_twice_is_found_by_its_check(write: Write) -> None:
    """The printed command replays the smallest such run."""
    reference = write(TWICE + CHARGE)
    answer = simulate(reference, "--first", 5, *seeds(4, faults="kills, failing handlers"), "--json")
    assert answer.code == 1
    violation = answer.json["violations"][0]
    assert violation["oracle"] == "check charged_as_often_as_ordered"
    assert " charges for " in violation["what"]
    smallest = answer.json["smallest"]
    assert smallest["faults"] == ["kills"]
    assert "tenants" not in smallest["size"]
    assert any(" runs charge " in line for line in smallest["last_events"])
    assert not any(" commits " in line for line in smallest["last_events"])
    typed = shlex.split(smallest["replay"])
    assert typed[:5] == ["fairlead", "simulate", reference, "--seed", str(violation["seed"])]
    replayed = run(*typed[1:], "--json")
    assert (replayed.code, replayed.json["events"]) == (1, smallest["events"])


def test_the_same_handler_made_right_holds(write: Write, empty_directory: Path) -> None:
    answer = simulate(write(ONCE + CHARGE), *seeds(3))
    assert answer.code == 0, answer.out
    assert not (empty_directory / "data").exists()  # the application's own configuration is not used


@pytest.mark.parametrize(
    ("text", "oracle", "what"),
    [
        (
            """
            @app.simulation.request
            def order(random):
                alice.enqueue("chrge")
            """,
            "what is enqueued has a handler",
            "is of kind 'chrge', and there are ['charge']",
        ),
        (
            """
            @app.simulation.request
            def order(random):
                raise KeyError("price")
            """,
            "a request does not raise",
            "KeyError: 'price' (fl_app",
        ),
        (
            """
            @app.simulation.request
            def order(random):
                raise SystemExit(3)
            """,
            "a request does not raise",
            "SystemExit: 3 (fl_app",
        ),
        (
            """
            @app.simulation.request
            def order(random):
                threading.Thread(target=print).start()
            """,
            "a request does not raise",
            "ThreadsForbidden: a simulated world has one thread",
        ),
        (
            """
            @app.simulation.request
            def order(random):
                os.fork()
            """,
            "a request does not raise",
            "ThreadsForbidden: a simulated world has one thread, in one process",
        ),
        (
            """
            @app.simulation.request
            def order(random):
                until = time.monotonic() + 1
                while time.monotonic() < until:
                    pass
            """,
            "every turn ends",
            "a task loops without waiting",
        ),
        (
            """
            @app.simulation.request
            def order(random):
                alice.enqueue("charge")

            @app.simulation.check
            def never_true(tenants):
                assert len(tenants) == 0
            """,
            "check never_true",
            "assert len(tenants) == 0 (fl_app",
        ),
        (
            """
            @app.simulation.request
            def order(random):
                alice.enqueue("charge")

            @app.simulation.check
            def answers(tenants):
                return len(tenants) == 0
            """,
            "check answers",
            "it returns False, which is ignored",
        ),
        (
            """
            @app.simulation.request
            def order(random):
                alice.enqueue("charge")

            @app.simulation.check
            def never_ends(tenants):
                time.sleep(3600)
            """,
            "the application's checks come to an end",
            "not within 60 s",
        ),
    ],
)
def test_what_an_application_does_wrong_is_named(write: Write, text: str, oracle: str, what: str) -> None:
    answer = simulate(write(ONCE + indent(dedent(text), " " * 4)), *seeds(1, faults="none", items=1), "--json")
    assert answer.code == 1
    (violation,) = answer.json["violations"]
    assert violation["oracle"] == oracle
    assert what in violation["what"]


def test_a_handler_that_always_fails_is_named_with_its_error(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application, "DRAIN_US_MAX", 30_000_000)
    text = """
    @app.handler("charge")
    def charge(job):
        raise KeyError("price")
    """
    answer = simulate(write(text + CHARGE), *seeds(1, faults="none", items=1), "--json")
    (violation,) = answer.json["violations"]
    assert violation["oracle"] == "everything drains after the faults"
    assert "1 items are left 0.5 minutes of virtual time after the faults, the limit; " in violation["what"]
    assert "KeyError: 'price'" in violation["what"]


@pytest.mark.parametrize("processes", [1, 2])
def test_handlers_that_never_ran_are_named(write: Write, processes: int) -> None:
    """Before, a campaign without violations did not mention kinds that no request enqueues."""
    text = """
    @app.handler("mail")
    def mail(job):
        pass

    @app.every(3600)
    def tidy(job):
        pass
    """
    typed = ("simulate", write(ONCE + CHARGE + text), "--processes", processes, *seeds(2, faults="none", items=1))
    assert "handlers that never ran, and so were not tested: mail, tidy\n2 seeds, " in run(*typed).out
    assert run(*typed, "--json").json["never_ran"] == ["mail", "tidy"]


def test_a_handler_of_which_every_run_fails_is_named_though_its_items_are_dead_letters(write: Write) -> None:
    text = """
    @app.handler("charge", retry=fairlead.Retry(attempts=2, backoff=0.01))
    def charge(job):
        raise KeyError("price")
    """
    typed = seeds(2, faults="none", items=1)
    answer = simulate(write(text + CHARGE), *typed)
    assert (answer.code, answer.out.splitlines()[0]) == (0, "handlers that ran and never returned: charge")
    assert "never" not in simulate(write(ONCE + CHARGE), *typed).out


def test_a_failed_item_and_its_dead_letter_are_in_the_event_log(write: Write) -> None:
    """The product's log of failed handlers is rate-limited; in a simulated world each failure may matter."""
    text = """
    @app.handler("charge", retry=fairlead.Retry(attempts=2))
    def charge(job):
        raise KeyError("price")
    """
    reference = write(text + CHARGE)
    answer = run("simulate", reference, "--seed", 0, "--faults", "none", "--size", "items=3")
    assert answer.code == 0
    events = [line.split(" ", 2)[2] for line in answer.out.splitlines()[:-2]]
    assert len([event for event in events if event.endswith(": raised KeyError")]) == 3 * 2
    assert (
        len([event for event in events if event.startswith("makes s") and event.endswith("a dead letter: error")]) == 3
    )


# --- Handlers of every form, unmodified ---

FORMS = {
    "async": """
        @app.handler("charge")
        async def charge(job):
            await asyncio.sleep(10)
            await asyncio.gather(*[asyncio.sleep(each) for each in (1, 2)])
            job.transact(lambda tr: note(tr, job))
    """,
    "sleeping": """
        @app.handler("charge")
        def charge(job):
            begun, begun_steadily = time.time(), time.monotonic()
            time.sleep(10)
            sleep(2)
            assert 11.5 < time.monotonic() - begun_steadily < 13
            job.transact(lambda tr: note(tr, job))
    """,
    "asyncio.run": """
        @app.handler("charge")
        def charge(job):
            asyncio.run(asyncio.sleep(10))
            job.transact(lambda tr: note(tr, job))
    """,
    "dicing": """
        @app.handler("charge", retry=fairlead.Retry(attempts=None, backoff=0.05, backoff_max=0.1))
        def charge(job):
            time.sleep(random.choice([1, 2, 3]) + os.urandom(1)[0] / 100 + uuid.uuid4().bytes[0] / 100)
            if random.random() < 0.5:
                raise ValueError("drawn")
            job.transact(lambda tr: note(tr, job))
    """,
    "cancelling": """
        @app.handler("other")
        def other(job):
            pass

        @app.handler("charge")
        def charge(job):
            other = alice.enqueue("other", delay=random.choice([0, 1]))
            try:
                alice.cancel(other.item_id)
            except fairlead.ItemGone:
                pass
            job.transact(lambda tr: note(tr, job))
    """,
    "too long for a transaction": """
        @app.handler("charge", retry=fairlead.Retry(attempts=2, backoff=0.01), transactional=True)
        def charge(job, tr):
            note(tr, job)
            if job.attempt < 2:
                sleep(6)
    """,
    "with keys of all sorts": """
        @app.handler("charge", transactional=True)
        def charge(job, tr):
            tr.set((-1, 0.5, None, (1, b"2"), uuid.uuid4(), "last"), b"")
            note(tr, job)

        @app.handler("other")
        def other(job):
            alice.transact(lambda tr: tr.raw.set(b"a key beside all tenants", b""))
    """,
    "Ray": """
        import ray

        @app.handler("charge")
        @ray.remote
        def charge(job):
            sleep(3)
            alice.transact(lambda tr: note(tr, job))

        @app.handler("other")
        @ray.remote(num_cpus=1)
        def other(job):
            pass
    """,
}
NOTED = """
    def note(tr, job):
        tr.set(("noted", job.id), b"")

    @app.simulation.request
    def order(random):
        made = alice.enqueue("charge")
        alice.transact(lambda tr: tr.set(("ordered", made.item_id), b""))

    @app.simulation.check
    def every_order_is_noted(tenants):
        for tenant in tenants:
            noted, ordered = tenant.transact(lambda tr: (keys(tr, "noted"), keys(tr, "ordered")))
            assert ordered <= noted, f"{len(ordered - noted)} of {len(ordered)} are missing"

    def keys(tr, name):
        return {key[1] for key, _ in tr.get_range((name,))}
"""


LATER = ("sleeping", "asyncio.run", "dicing", "with keys of all sorts")  # Forms that a short run leaves to a long one.


@pytest.mark.parametrize(
    "form", [pytest.param(form, marks=pytest.mark.long if form in LATER else ()) for form in FORMS]
)
def test_handlers_run_as_they_are(write: Write, form: str) -> None:
    """A virtual hour of sleep costs nothing, and all randomness comes from the seed."""
    began_s = time.monotonic()
    answer = simulate(write(dedent(FORMS[form]) + dedent(NOTED)), *seeds(1, items=3), "--json")
    assert (answer.code, answer.json["violations"] if answer.out else answer.err) == (0, [])
    assert time.monotonic() - began_s < 30


def test_ray_functions_with_options_run_as_well(write: Write) -> None:
    text = dedent(FORMS["Ray"]).replace("@ray.remote(num_cpus=1)\n", "") + dedent("""
        @ray.remote
        def more(job):
            alice.transact(lambda tr: note(tr, job))

        app.handler("more")(more.options(num_cpus=1))
    """)
    answer = simulate(write(text + dedent(NOTED).replace('"charge"', '"more"')), *seeds(1, faults="none", items=5))
    assert answer.code == 0, answer.out


def test_periodic_handlers_tick_as_long_as_there_is_trouble(write: Write) -> None:
    text = """
    @app.every(1)
    def tidy(job):
        alice.transact(lambda tr: tr.add(("ticks",), 1))

    @app.handler("charge")
    def charge(job):
        pass

    @app.simulation.request
    def order(random):
        alice.enqueue("charge")

    @app.simulation.check
    def it_ticked(tenants):
        ticks = int.from_bytes(alice.transact(lambda tr: tr.get(("ticks",))) or b"", "little")
        assert 2 <= ticks <= 6, ticks
    """
    answer = simulate(write(text), *seeds(2, faults="none", items=3))
    assert answer.code == 0, answer.out


def test_what_a_world_leaves_in_the_process_can_be_removed(write: Write) -> None:
    text = """
    sent = []

    @app.handler("mail")
    def mail(job):
        sent.append(job.id)
        time.sleep(len(sent))

    @app.simulation.request
    def order(random):
        alice.enqueue("mail")
    """
    refused = simulate(write(text), *seeds(1, faults="none", items=3))
    assert refused.code == 2
    assert "the application is not deterministic, seed: 0" in refused.err
    text += """
    @app.simulation.begin
    def forget():
        sent.clear()
    """
    assert simulate(write(text), *seeds(1, faults="none", items=3)).code == 0


def test_garbage_is_not_collected_during_a_world(write: Write) -> None:
    """What a collection ends, such as a watch in a cycle, would depend on what the process did before."""
    text = """
    import gc

    @app.handler("mail")
    def mail(job):
        job.transact(lambda tr: tr.set((f"collected: {gc.isenabled()}",), b""))

    @app.simulation.request
    def order(random):
        alice.enqueue("mail")

    @app.simulation.check
    def nothing_was_collected(tenants):
        assert alice.transact(lambda tr: list(tr.get_range(()))) == [(("collected: False",), b"")]
    """
    assert gc.isenabled()
    answer = simulate(write(text), *seeds(1, faults="none", items=3))
    assert (answer.code, answer.err) == (0, ""), answer.out
    assert gc.isenabled()


# --- Workflows ---

TRIP = """
    charged = []
    bob = app.tenant("shop", "bob")

    @app.simulation.begin
    def nothing_is_charged():
        charged.clear()

    @app.handler("mail", transactional=True)
    def mail(job, tr):
        tr.add(("mails",), 1)

    def add(tr, name, amount):
        tr.add((name,), amount)

    def number(tenant, name):
        return tenant.transact(lambda tr: int.from_bytes(tr.get((name,)) or b"", "little", signed=True))

    @app.simulation.request
    def somebody_books(random):
        def body(tr):
            item = tr.enqueue("trip", {"to": "shop/bob"})
            tr.signal(item.item_id, "approved")
        alice.transact(body)

    @app.simulation.check
    def each_trip_is_paid_once(tenants):
        done = number(alice, "done")
        counts = [-number(alice, "balance"), number(bob, "balance"), number(alice, "mails"), len(set(charged))]
        assert counts == [done] * 4, f"{counts} beside {done}"
"""


def test_workflows_run_under_all_faults(write: Write) -> None:
    """And what Fairlead enqueues for them is not named among the handlers that never ran."""
    text = """
    @app.workflow("trip", keep_result=3600)
    def trip(wf, to):
        wf.step(add, "balance", -1, undo=lambda tr, name, amount: add(tr, name, -amount))
        wf.step(add, "balance", 1, on=to)
        wf.effect(lambda key: charged.append(key), name="charge")
        wf.call("mail")
        wf.wait_for("approved", timeout=60)
        wf.sleep(1)
        wf.step(add, "done", 1)
    """
    answer = simulate(write(TRIP + text), "--seeds", 4, "--size", "items=8")
    assert answer.code == 0, answer.out
    assert "never ran" not in answer.out


def test_a_workflow_that_calls_the_outside_without_an_effect_is_found(write: Write) -> None:
    text = """
    @app.workflow("trip")
    def trip(wf, to):
        wf.step(add, "balance", -1)
        wf.step(add, "balance", 1, on=to)
        charged.append(uuid.uuid4())
        wf.call("mail")
        wf.wait_for("approved")
        wf.step(add, "done", 1)
    """
    answer = simulate(write(TRIP + text), *seeds(1, faults="none", items=2))
    assert answer.code == 1
    assert "check each_trip_is_paid_once: [2, 2, 2, 4] beside 2" in answer.out


# --- What is not deterministic, or cannot be simulated ---


def test_a_nondeterministic_application_is_reported_with_the_reason(write: Write) -> None:
    text = """
    dice = random.Random()

    @app.handler("charge")
    def charge(job):
        time.sleep(dice.random())
    """
    answer = simulate(write(text + CHARGE), *seeds(1, faults="none", items=3), "--json")
    assert answer.code == 2
    assert answer.error["error"] == "the application is not deterministic"
    assert answer.error["fields"]["first"] != answer.error["fields"]["second"]
    assert "a `random.Random()` without a seed" in answer.error["do"]


def test_an_error_that_names_an_object_by_its_address_is_the_same_in_every_run(write: Write) -> None:
    text = """
    @app.handler("charge", retry=fairlead.Retry(attempts=2))
    def charge(job):
        raise ValueError(f"cannot charge {object()}")
    """
    answer = simulate(write(text + CHARGE), *seeds(1, faults="none", items=3))
    assert (answer.code, answer.err) == (0, "")


def test_an_application_that_differs_between_processes_is_reported(write: Write) -> None:
    """As the order of a set of texts differs."""
    text = """
    @app.handler("charge")
    def charge(job):
        time.sleep(os.getpid() / 1_000)
    """
    answer = run("simulate", write(text + CHARGE), "--processes", 2, *seeds(1, faults="none", items=3), "--json")
    assert answer.code == 2
    assert answer.error["fields"] == {"seed": 0}
    assert "the order of a set of texts" in answer.error["do"]


def test_an_application_without_requests_is_refused_with_what_to_write(write: Write) -> None:
    answer = simulate(write(ONCE))
    assert answer.code == 2
    assert "no simulated requests" in answer.err
    assert "@app.simulation.request" in answer.err


def test_stores_that_are_used_before_a_world_begins_are_refused(write: Write) -> None:
    text = """
    @app.simulation.begin
    def too_early():
        alice.enqueue("charge")
    """
    answer = simulate(write(ONCE + CHARGE + text))
    assert answer.code == 2
    assert "no stores before a simulated world begins" in answer.err


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        ("fl_missing:app", "no module fl_missing"),
        ("fl_app:alice", "it is of type TenantDatabase, not a fairlead.App"),
        ("fl_app:aap", "nearest: app"),
        ("fl_app.py", "the module is a path"),
    ],
)
def test_what_is_no_application_is_refused(empty_directory: Path, reference: str, says: str) -> None:
    (empty_directory / "fl_app.py").write_text(HEAD, encoding="utf-8")
    answer = simulate(reference)
    assert answer.code == 2
    assert says in answer.err


def test_a_module_that_does_not_import_fails_with_its_own_error(empty_directory: Path) -> None:
    (empty_directory / "fl_broken.py").write_text("1 / 0", encoding="utf-8")
    answer = simulate("fl_broken:app")
    assert answer.code != 0
    assert "ZeroDivisionError" in answer.err
    assert "fl_broken.py" in answer.err


def test_requests_choose_their_tenants(write: Write) -> None:
    answer = simulate(write(ONCE + CHARGE), "--size", "tenants=3")
    assert answer.code == 2
    assert "requests choose its tenants" in answer.err


@pytest.mark.parametrize(
    ("decorator", "function"),
    [
        ("request", lambda: None),
        ("request", "no function"),
        ("check", lambda tenants, more: None),
        ("begin", lambda what: None),
    ],
)
def test_what_cannot_be_called_is_refused_where_it_is_written(decorator: str, function: Any) -> None:
    with pytest.raises(BadArgument, match="a plain function"):
        getattr(App("memory:").simulation, decorator)(function)


def test_a_coroutine_is_no_request() -> None:
    async def order(random: Any) -> None: ...

    with pytest.raises(BadArgument, match="a plain function of a"):
        App("memory:").simulation.request(order)


# --- The process afterwards ---


def test_after_a_run_the_machine_is_as_it_was(write: Write) -> None:
    before = (time.time, time.sleep, threading.Thread.start, random.getstate(), sys.stdout)
    reference = write(dedent(FORMS["dicing"]) + dedent(NOTED))
    assert simulate(reference, *seeds(1, faults="none", items=3)).code == 0
    assert (time.time, time.sleep, threading.Thread.start, random.getstate(), sys.stdout) == before
    module = sys.modules[reference.partition(":")[0]]
    assert module.sleep is not time.sleep  # It was imported by name, and is the real one again:
    began_s = time.monotonic()
    module.sleep(0.01)
    assert time.monotonic() - began_s >= 0.01


def test_a_world_that_stands_still_says_where(write: Write, empty_directory: Path) -> None:
    """A lock that is held during a sleep stops the only thread."""
    text = """
    from fairlead.app_simulation import machine

    machine.STUCK_S = 0.2
    lock = threading.Lock()

    @app.simulation.request
    def wait_for_each_other(random):
        with lock:
            time.sleep(5)
    """
    command = [sys.executable, "-m", "fairlead", "simulate", write(text), "--processes", "1", "--faults", "none"]
    env = {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=env) as process:
        assert process.stderr is not None
        told = next(line for line in process.stderr if "wait_for_each_other" in line)
        process.kill()
    assert "fl_app" in told


def test_a_world_that_goes_on_is_not_taken_for_one_that_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, a run of more than a minute, such as one whose handlers always fail on a busy machine, was."""
    begun, third = itertools.count(1), threading.Event()

    def dump_later(seconds: float, **_: Any) -> None:
        if next(begun) == 3:
            third.set()

    monkeypatch.setattr(faulthandler, "dump_traceback_later", dump_later)
    monkeypatch.setattr(machine, "STUCK_S", 0.1)
    with machine.use_machine(cast("Any", GoesOn())):
        assert third.wait(PATIENCE_S)


class GoesOn:
    """A machine that reports progress at every call."""

    seed = ""

    def __init__(self) -> None:
        self._turns = itertools.count()

    @property
    def turns(self) -> int:
        return next(self._turns)


WRITES = """
    import logging, sys, warnings

    print("at the import")
    mails = logging.getLogger("mails")
    mails.addHandler(logging.StreamHandler())
    mails.handlers[0].setFormatter(logging.Formatter("%(asctime)s %(process)d %(threadName)s: %(message)s"))
    mails.propagate = False

    @app.handler("charge")
    def charge(job):
        print("charges", object())
        print("in vain", file=sys.stderr)
        warnings.warn("an old way")
        mails.warning("mailed to %(user)s", {"user": job.tenant.user})
        logging.getLogger("shop").warning("charged %s", job.tenant.user)
"""


def test_what_an_application_writes_and_logs_is_in_the_event_log(write: Write) -> None:
    answer = run_process("simulate", write(WRITES + CHARGE), "--seed", "0", "--faults", "none", "--size", "items=1")
    assert (answer.code, answer.err) == (0, "at the import\n")
    events = [line.split(" ", 2)[2] for line in answer.out.splitlines() if "#1 " in line]
    assert "prints charges <object object at 0x...>" in events
    assert "prints in vain" in events
    assert any(event.startswith("prints ") and event.endswith("UserWarning: an old way") for event in events)
    assert any(re.fullmatch(r"prints 2023-11-14 .* 0 MainThread: mailed to alice", event) for event in events)
    assert "logs WARNING charged alice" in events


def test_in_a_campaign_what_an_application_writes_is_not_in_the_way(write: Write) -> None:
    """A process runs its first seed twice, and the application warns both times."""
    typed = ("--seeds", "2", "--processes", "1", "--faults", "none", "--size", "items=1", "--json")
    answer = run_process("simulate", write(WRITES + CHARGE), *typed)
    assert (answer.code, answer.json["seeds"], answer.err) == (0, 2, "at the import\n")


def test_a_handler_that_ends_its_process_is_reported_with_its_seeds(write: Write) -> None:
    """Before, a campaign on several processes ended with a traceback of its pool."""
    reference = write("""
        @app.simulation.request
        def order(random):
            alice.enqueue("leave")

        @app.handler("leave")
        def leave(job):
            os._exit(3)
    """)
    answer = run("simulate", reference, "--processes", 2, *seeds(8), "--first", 7)
    assert answer.code == 2
    assert "ended during a run" in answer.err
    assert "first: 7" in answer.err
    assert "Traceback" not in answer.err


@contextmanager
def campaign(*typed: str) -> Iterator[subprocess.Popen[str]]:
    """Run `fairlead simulate` in processes of their own. None of them outlives the test, whatever fails."""
    with subprocess.Popen(
        [sys.executable, "-m", "fairlead", "simulate", *typed, "--processes", "2"], stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, env={"PYTHONPATH": str(ROOT)}, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def wait_until_there_are(count: int, found: Path, pattern: str) -> None:
    until_s = time.monotonic() + PATIENCE_S
    while len(list(found.glob(pattern))) < count:
        assert time.monotonic() < until_s
        time.sleep(0.05)


def test_ctrl_c_ends_all_processes_and_shows_what_was_found_so_far(write: Write, empty_directory: Path) -> None:
    text = """
    @app.simulation.request
    def begun(random):
        open("begun", "w").close()
    """
    with campaign(write(ONCE + CHARGE + text), "--json", "--seeds", "1000000") as process:
        wait_until_there_are(1, empty_directory, "begun")
        os.killpg(process.pid, signal.SIGINT)  # A terminal signals all its processes.
        out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, err) == (130, "")
    assert '"interrupted": true' in out


@pytest.mark.parametrize("end", ["Ctrl-C", "SIGKILL"])
def test_however_a_campaign_ends_its_processes_end_in_the_midst_of_what_they_do(
    write: Write, empty_directory: Path, end: str
) -> None:
    """Before, they ran until their handlers ended; these never end."""
    text = """
    @app.simulation.request
    def order(random):
        alice.enqueue("hang")

    @app.handler("hang")
    def hang(job):
        open(f"begun{os.getpid()}", "w").close()
        while True:
            pass
    """
    with campaign(write(text), "--faults", "none") as process:
        wait_until_there_are(2, empty_directory, "begun*")
        if end == "SIGKILL":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGINT)
        # Its output ends when the last process with that pipe has ended.
        process.communicate(timeout=PATIENCE_S)
    assert process.returncode == (-signal.SIGKILL if end == "SIGKILL" else 130)


def test_ctrl_c_around_a_handler_is_no_failure_of_it(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, the item was reported as failed without an attempt: a violation."""

    def run_and_interrupt(*args: Any) -> None:
        run_handler(*args)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("fairlead.actors.worker.run_handler", run_and_interrupt)
    assert run("simulate", write(ONCE + CHARGE), "--seed", 0, "--size", "items=1").code == 130


@pytest.mark.parametrize("typed", [("--seeds", 1), ("--seed", 0)])
def test_ctrl_c_in_a_handler_is_no_failure_of_it(write: Write, typed: tuple[object, ...]) -> None:
    """A worker survives all errors of handlers, and would continue with the next attempt."""
    text = """
    import signal

    @app.handler("charge")
    def charge(job):
        signal.raise_signal(signal.SIGINT)
    """
    answer = simulate(write(text + CHARGE), *typed, "--faults", "none", "--size", "items=1")
    assert answer.code == 130
