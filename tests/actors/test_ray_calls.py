"""Code on threads of Ray, or beside them, is watched as any loop of an actor. Needs no cluster."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from random import Random
from typing import Any

import pytest

from fairlead.actors.runtime import ray_host  # noqa: F401 - before ray: it sets what Ray reads when it is imported
from fairlead.actors.runtime.host import ActorDied
from fairlead.actors.runtime.ray_host import actors
from fairlead.actors.runtime.ray_host.calls import RayRemote, called_with
from fairlead.actors.runtime.supervisor import STALL_US, Supervisor
from fairlead.actors.runtime.thread_host import ThreadHost
from fairlead.clock import SystemClock
from tests.acceptance.fleets import eventually
from tests.actors.stage import held_item

# isort: split
import ray
from ray.exceptions import RaySystemError

PATIENCE_S = 20.0
NO_ARGUMENTS = b"\x90"  # an empty array of msgpack's


class Watched:
    """A supervisor that checks when the test asks it to, and the failures that it found."""

    def __init__(self) -> None:
        self.failures: list[str] = []
        self.supervisor = Supervisor(self.failures.append, lambda thread_id: "")

    def check_loops(self) -> None:
        for _ in range(3):  # The first check may find an earlier report.
            self.supervisor.check_loops(STALL_US)


@pytest.fixture
def watched() -> Watched:
    return Watched()


class Handle:
    """A handle to an actor whose method `pid` is sent by `send`."""

    def __init__(self, send: Callable[[], Any]) -> None:
        self.pid = self
        self._send = send

    def remote(self, packed: bytes) -> Any:
        return self._send()


class Reference:
    """Ray's reference of a call."""

    def __init__(self) -> None:
        self._future: Future[Any] = Future()

    def future(self) -> Future[Any]:
        return self._future


def ignore(result: Any, error: Exception | None) -> None:
    """Take an answer."""


# --- Calling ---


def test_an_error_in_the_thread_that_finds_an_actor_fails_the_caller(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread ended, the call was never answered, and the caller counted it as unanswered for ever."""

    def refuse() -> Any:
        raise ValueError("not an answer of Ray's")

    monkeypatch.setattr(ray, "get_actor", lambda name, namespace: Handle(refuse))
    RayRemote("manager", watched.supervisor).call("pid", done=ignore)
    eventually(lambda: bool(watched.failures))
    assert "ValueError: not an answer of Ray's" in watched.failures[0]


def test_an_error_in_the_callback_of_an_answer_fails_the_caller(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray's thread only logged the error, and the answer was lost."""
    reference = Reference()
    monkeypatch.setattr(ray, "get_actor", lambda name, namespace: Handle(lambda: reference))

    def take(result: Any, error: Exception | None) -> None:
        raise KeyError(result)

    RayRemote("manager", watched.supervisor).call("pid", done=take)
    eventually(lambda: bool(reference.future()._done_callbacks))  # type: ignore[attr-defined]
    reference.future().set_result(7)
    eventually(lambda: bool(watched.failures))
    assert "KeyError: 7" in watched.failures[0]


def test_a_slow_search_for_an_actor_does_not_fail_the_caller(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Exception | None] = []

    def get_actor(name: str, namespace: str) -> Any:
        watched.check_loops()
        raise RaySystemError("away")

    monkeypatch.setattr(ray, "get_actor", get_actor)
    RayRemote("manager", watched.supervisor).call("pid", done=lambda result, error: answers.append(error))
    eventually(lambda: bool(answers))
    assert isinstance(answers[0], ActorDied)
    assert watched.failures == []


# --- Being called ---


class Called:
    """An actor, as in its own process."""

    def __init__(self, watched: Watched) -> None:
        self.supervisor = watched.supervisor
        self.go_on = threading.Event()
        self.begun = threading.Event()

    @called_with()
    def stand_still(self) -> None:
        self.begun.set()
        self.go_on.wait(PATIENCE_S)

    @called_with()
    def leave(self) -> None:
        sys.exit(3)

    @called_with()
    def fail(self) -> None:
        raise KeyError("no such order")


def test_a_call_that_stalls_fails_its_actor(watched: Watched) -> None:
    """Ray's thread waited unnoticed, and the scanner skipped the pointers of the call for ever."""
    actor = Called(watched)
    calling = threading.Thread(target=actor.stand_still, args=(NO_ARGUMENTS,))
    calling.start()
    assert actor.begun.wait(PATIENCE_S)
    watched.check_loops()
    actor.go_on.set()
    calling.join()
    assert "stand_still" in watched.failures[0]


def test_a_call_that_exits_is_answered_and_fails_its_actor(watched: Watched) -> None:
    """Ray considers an exit an ordinary end, and would not restart the actor."""
    with pytest.raises(ActorDied):
        Called(watched).leave(NO_ARGUMENTS)
    assert "SystemExit: 3" in watched.failures[0]


def test_the_caller_gets_the_error_of_a_call(watched: Watched) -> None:
    with pytest.raises(KeyError):
        Called(watched).fail(NO_ARGUMENTS)
    assert watched.failures == []


# --- Killing tasks ---


def test_the_cancellation_of_a_job_does_not_wait_for_ray(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker cancels under its lock. It stalled for as long as Ray's head did not answer."""
    begun, killing, killed, ended = (threading.Event() for _ in range(4))

    def cancel(reference: Any, *, force: bool) -> None:
        killing.set()
        killed.wait(PATIENCE_S)
        raise ValueError("no task of this name")

    monkeypatch.setattr(ray, "cancel", cancel)

    def get(reference: Any) -> None:
        begun.set()
        ended.wait(PATIENCE_S)

    monkeypatch.setattr(ray, "get", get)

    class Tasks:
        def start(self, function: Any, job: Any) -> Any:
            return "a reference"

    host = ThreadHost(clock=SystemClock(), random=Random(1), supervisor=watched.supervisor)
    runners = actors.RayRunners(host, None, Tasks())  # type: ignore[arg-type]
    held = held_item(1)
    running = threading.Thread(target=runners.run_remote, args=(ignore, held))
    running.start()
    assert begun.wait(PATIENCE_S)
    held.cancel(now_us=1)
    assert killing.wait(PATIENCE_S)
    watched.check_loops()
    killed.set()
    eventually(lambda: "cannot be killed" in caplog.text)
    ended.set()
    running.join()
    assert watched.failures == [], "what Ray says is not the worker's failure"
