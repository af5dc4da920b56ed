"""A manager that is told to stop while it leases items: it has stopped once its workers have them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from fairlead.actors.consumer import Resources
from fairlead.actors.execution.submitted_handlers import SubmittedHandlers
from fairlead.actors.handlers import Registry
from fairlead.actors.messages import UNKNOWN_SCAN, ScanInfo, ServeReply
from fairlead.actors.runtime.ray_host import actors, calls
from fairlead.actors.runtime.supervisor import Supervisor
from fairlead.actors.runtime.thread_host import PendingCalls, ThreadRemote
from fairlead.actors.settings import ConsumerSettings
from fairlead.clock import SystemClock

A_WHILE_S = 0.2
PATIENCE_S = 20.0


class Leasing:
    """A manager that takes a while to lease, and then hands over."""

    serving = threading.Event()

    def __init__(self, *args: Any, **options: Any) -> None:
        (self._worker,) = args[4]

    def serve(self, shard_name: str, refs: Sequence[Any], scan: ScanInfo) -> ServeReply:
        self.serving.set()
        threading.Event().wait(A_WHILE_S)
        self._worker.call("place", [], done=lambda result, error: None)
        return ServeReply(1, 0, 0, 0, 0)

    def stop(self) -> None:
        """Do nothing: what is being served is served to its end."""


class Taking:
    """A worker that takes a while to take items."""

    def __init__(self) -> None:
        self.taken = False

    def place(self, refs: Sequence[Any]) -> None:
        threading.Event().wait(A_WHILE_S)
        self.taken = True


def nothing_opened() -> Resources:
    submitted = SubmittedHandlers(Registry(), b"", allow=False)
    return Resources({}, ConsumerSettings(), (), submitted, SystemClock(), Random(1))


def test_a_manager_has_stopped_once_its_workers_have_what_it_was_leasing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its process is killed next: before, items on their way were lost with it, and waited out their lease."""
    worker = Taking()

    def remote(name: str, supervisor: Supervisor, unanswered: PendingCalls | None = None) -> ThreadRemote:
        return ThreadRemote(worker, name, supervisor, unanswered)

    monkeypatch.setattr(actors, "Manager", Leasing)
    monkeypatch.setattr(actors, "RayRemote", remote)
    monkeypatch.setattr(actors, "_open", lambda opening: opening())
    monkeypatch.setattr(actors, "_drain_on_sigterm", lambda drain: None)
    actor: Any = actors.ManagerActor(nothing_opened, "manager-0", ["worker"], None, b"consumer", 0, 1)
    serving = threading.Thread(target=actor.serve, args=(calls._pack(("main", [], UNKNOWN_SCAN)),))
    serving.start()
    assert Leasing.serving.wait(PATIENCE_S)
    actor.stop()
    assert worker.taken
    serving.join()
