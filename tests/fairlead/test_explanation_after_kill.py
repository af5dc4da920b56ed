"""Why an item does not run after its consumer was killed: a real consumer, in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from fairlead import App, Cause, Job, new_item
from tests.fairlead.live_consumers import HELD_MAX, PATIENCE_S, Gate, consumer, eventually, until
from tests.fairlead.shell import ROOT

DYING = """
import os, signal, sys, threading
from fairlead.actors.dispatch.pointer_batches import PointerBatches
from fairlead import App, Config, ConsumerSettings, fleet
from tests.rooted import enter_root

def conflict(batches, shard, *args):
    raise shard.db.errors[0](1020)  # as if another consumer were at the same pointer each time

def die(batches, shard, ref, *args):
    assert batches._lease(shard, ref)
    os.kill(os.getpid(), signal.SIGKILL)

if {before_visit}:
    PointerBatches._transact, PointerBatches._process_leased = conflict, die
enter_root()
settings = ConsumerSettings(workers=1, managers=1, slots=2, lease_ms=2_000, pointer_lease_ms=10_000)
app = App(config=Config(shards={{"main": sys.argv[1]}}, consumer=settings))
app.handler("mail")(lambda job: threading.Event().wait())
fleet.start(app, "tests:app", runtime="threads")
threading.Event().wait()
"""


@contextmanager
def doomed(app: App, *, before_visit: bool) -> Iterator[subprocess.Popen[bytes]]:
    """A consumer in a process of its own, whose handlers never end; killed at the end.

    `before_visit`: it kills itself between the lease of a contended pointer and its visit.
    """
    program = DYING.format(before_visit=before_visit)
    typed = [sys.executable, "-c", program, app.config.shards["main"]]
    with subprocess.Popen(typed, env={**os.environ, "PYTHONPATH": str(ROOT)}) as process:
        try:
            yield process
        finally:
            process.kill()


def test_an_item_whose_pointer_is_leased_says_so(live: App, gate: Gate) -> None:
    """The consumer that leased its pointer is dead; the live one waits until that lease expires."""
    live.handler("mail")(gate)
    alice = live.tenant("shop", "alice")
    item_id = alice.enqueue("mail").item_id
    with doomed(live, before_visit=True) as process:
        assert process.wait(PATIENCE_S) == -signal.SIGKILL
    with consumer(live):
        said = until(Cause.POINTER_LEASED, lambda: alice.explain(item_id))
    assert said.sentence.startswith("a consumer reads its queue within ")


def test_an_item_whose_worker_was_killed_says_that_its_lease_ended_and_later_that_it_was_lost(live: App) -> None:
    """Another consumer lives and has no capacity, so the item does not run at once."""
    opened = threading.Event()

    @live.handler("mail", permanent=(KeyError,))
    def send(job: Job) -> None:
        while not opened.wait(0.01) and not job.cancelled:
            pass
        if job.payload == "precious":
            raise KeyError("no such street")

    alice = live.tenant("shop", "alice")
    item_id = alice.enqueue("mail", "precious").item_id
    with doomed(live, before_visit=False) as process:
        said = until(Cause.RUNNING, lambda: alice.explain(item_id))
        assert said.details["pid"] == process.pid
        made = live.enqueue_many((live.tenant("shop", f"user {number}"), new_item("mail")) for number in range(60))
        others = [(live.tenant("shop", f"user {number}"), each.item_id) for number, each in enumerate(made)]

        def held_here() -> int:
            return sum(tenant.explain(each).details.get("pid") == os.getpid() for tenant, each in others)

        try:
            with consumer(live):
                eventually(lambda: held_here() == HELD_MAX)
                process.kill()
                said = until(Cause.LEASE_EXPIRED, lambda: alice.explain(item_id))
                assert "its lease expired" in said.sentence
                opened.set()
                said = until(Cause.DEAD_LETTER, lambda: alice.explain(item_id))
        finally:
            opened.set()
    assert (said.attempts.raised, said.attempts.lease_lost) == (1, 1)
