"""An actor that has failed or cannot start ends its process in every case, so that Ray starts another."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any, NoReturn

import pytest

from fairlead.actors.runtime import ray_host  # noqa: F401 - before ray: it sets what Ray reads when it is imported
from fairlead.actors.runtime.actor_identity import Identity
from fairlead.actors.runtime.ray_host import actors, restarts
from fairlead.actors.runtime.ray_host.restarts import restarting_supervisor
from fairlead.clock import SystemClock

PATIENCE_S = 10.0


@pytest.fixture
def exits(monkeypatch: pytest.MonkeyPatch) -> SimpleQueue[int]:
    """The codes with which a process would have ended."""
    codes: SimpleQueue[int] = SimpleQueue()
    monkeypatch.setattr(os, "_exit", codes.put)
    monkeypatch.setattr(restarts, "RESTART_S_MIN", 0.0)
    monkeypatch.setattr(restarts, "ASK_S_MAX", 0.1)
    monkeypatch.setattr(restarts, "RETURN_ITEMS_S_MAX", 0.1)
    monkeypatch.setattr(restarts, "_restarts", lambda: 0)
    monkeypatch.setattr(actors, "OPEN_RETRY_S", 0.0)
    return codes


@pytest.fixture
def waiting() -> Iterator[threading.Event]:
    """An event that is not set before the test ends."""
    event = threading.Event()
    yield event
    event.set()


def refuse_threads(*args: Any) -> NoReturn:
    raise RuntimeError("can't start new thread")


def test_an_actor_exits_although_no_thread_can_be_started(
    exits: SimpleQueue[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """This may be why it failed. Such an actor stayed, without heartbeats, and was never replaced."""
    supervisor = restarting_supervisor(SystemClock())
    monkeypatch.setattr(threading.Thread, "start", refuse_threads)
    supervisor.fail("no thread can be started")
    assert exits.get(timeout=PATIENCE_S) == 1


@pytest.mark.parametrize("deaf", ["answers", "refuses", "is silent"])
def test_an_actor_exits_although_ray_and_the_store_do_not_answer(
    exits: SimpleQueue[int], monkeypatch: pytest.MonkeyPatch, waiting: threading.Event, deaf: str
) -> None:
    def ask() -> int:
        if deaf == "refuses":
            raise ConnectionError("the head is away")
        if deaf == "is silent":
            waiting.wait()
        return 0

    monkeypatch.setattr(restarts, "_restarts", ask)
    monkeypatch.setattr(threading, "excepthook", lambda told: None)
    restarting_supervisor(SystemClock(), ask).fail("a loop died")
    assert exits.get(timeout=PATIENCE_S) == 1


def test_an_actor_that_cannot_start_ends_its_process(exits: SimpleQueue[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray never restarts an actor whose constructor raises: the fleet would lack it for good."""

    def open_nothing(opening: Any) -> NoReturn:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(actors, "_open", open_nothing)
    actors.WorkerActor(lambda: None, "worker-0", Identity(b"consumer", "host", 1, 0))  # type: ignore[arg-type, return-value]
    assert exits.get(timeout=PATIENCE_S) == 1
