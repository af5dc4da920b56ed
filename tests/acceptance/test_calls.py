"""Calls between Ray actors: every one is answered, and never on the caller's own thread."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import pytest

from fairlead.actors.runtime import ray_host  # noqa: F401 - before ray: it sets what Ray reads when it is imported
from fairlead.actors.runtime.host import ActorDied
from fairlead.actors.runtime.ray_host.calls import NAMESPACE, RayRemote, called_with
from fairlead.actors.runtime.supervisor import Supervisor
from fairlead.zones.top_level.pointers import PointerRef
from tests.acceptance.fleets import eventually

# isort: split
import ray
from ray.exceptions import GetTimeoutError, PendingCallsLimitExceeded, RaySystemError

CALLS = 2_000
NO_ARGUMENTS = b"\x90"  # an empty array of msgpack's


def watching() -> Supervisor:
    """Return a supervisor that finds nothing to say."""
    return Supervisor(pytest.fail, lambda thread_id: "")


class Answering:
    """An actor that tells its process id, picks from what it is sent, or fails."""

    def __init__(self) -> None:
        self.supervisor = watching()

    @called_with()
    def pid(self) -> int:
        return os.getpid()

    @called_with(list[PointerRef])
    def last(self, refs: list[PointerRef]) -> PointerRef:
        return refs[-1]

    @called_with()
    def fail(self) -> None:
        raise KeyError("no such order")


class Answers:
    """What came back, and on how many of the answers the caller's lock would have been waited for by its own thread."""

    def __init__(self) -> None:
        self.results: list[Any] = []
        self.errors: list[Exception] = []
        self.on_the_callers_thread = 0
        self._caller = threading.get_ident()

    def note(self, result: Any, error: Exception | None) -> None:
        if threading.get_ident() == self._caller:
            self.on_the_callers_thread += 1
        if error is None:
            self.results.append(result)
        else:
            self.errors.append(error)

    def came(self) -> int:
        return len(self.results) + len(self.errors)


@pytest.fixture
def actor(cluster: None, request: pytest.FixtureRequest) -> Any:
    """An actor that Ray does not restart."""
    kind: Any = ray.remote(Answering)
    name = request.node.name
    actor = kind.options(name=name, namespace=NAMESPACE, num_cpus=0, max_restarts=0).remote()
    pid = ray.get(actor.pid.remote(NO_ARGUMENTS))
    yield name, pid, actor
    ray.kill(actor)


def test_a_result_and_an_error_come_back_as_they_are(actor: Any) -> None:
    answers = Answers()
    remote = RayRemote(actor[0], watching())
    remote.call("pid", done=answers.note)
    remote.call("fail", done=answers.note)
    eventually(lambda: answers.came() == 2)
    assert answers.results == [actor[1]]
    assert [(type(error), error.args) for error in answers.errors] == [(KeyError, ("no such order",))]


def test_what_is_sent_arrives_as_what_it_was(actor: Any) -> None:
    answers = Answers()
    ref = PointerRef(part=3, id=bytes(16), vesting_us=2**50, priority=255)
    RayRemote(actor[0], watching()).call("last", [ref._replace(part=1), ref], done=answers.note)
    eventually(lambda: answers.came() == 1)
    assert answers.results == [ref]
    assert type(answers.results[0]) is PointerRef


def test_calls_to_a_dead_actor_are_answered_and_never_on_the_callers_thread(actor: Any) -> None:
    """Callers hold the lock that the answer takes: an answer on their own thread would wait for itself for ever.

    Ray answers at once when it knows that an actor is dead; about one call in a hundred came back before the callback
    was in place.
    """
    name, pid, _ = actor
    answers = Answers()
    remote = RayRemote(name, watching())
    remote.call("pid", done=answers.note)
    eventually(lambda: answers.came() == 1)
    os.kill(pid, signal.SIGKILL)
    sent = 1
    while sent < CALLS or len(answers.errors) < CALLS // 2:
        remote.call("pid", done=answers.note)
        sent += 1
    eventually(lambda: answers.came() == sent)
    assert answers.on_the_callers_thread == 0
    assert {type(error) for error in answers.errors} == {ActorDied}


@pytest.mark.usefixtures("cluster")
def test_a_call_to_nobody_is_answered_too() -> None:
    answers = Answers()
    RayRemote("nobody", watching()).call("pid", done=answers.note)
    eventually(lambda: answers.came() == 1)
    assert [type(error) for error in answers.errors] == [ActorDied]
    assert answers.on_the_callers_thread == 0


@pytest.mark.parametrize("error", [GetTimeoutError("no answer"), RaySystemError("away"), ValueError("no such actor")])
def test_a_call_is_answered_when_its_actor_cannot_be_looked_up(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller counts its calls that are out: one without an answer would be out for ever."""

    def get_actor(name: str, namespace: str) -> Any:
        raise error

    monkeypatch.setattr(ray, "get_actor", get_actor)
    answers = Answers()
    RayRemote("anybody", watching()).call("pid", done=answers.note)
    eventually(lambda: answers.came() == 1)
    (answer,) = answers.errors
    assert isinstance(answer, ActorDied)
    assert type(error).__name__ in str(answer.fields["reason"])


class Unsendable:
    """A handle to an actor to which Ray sends nothing."""

    @property
    def pid(self) -> Unsendable:
        return self

    def remote(self, packed: bytes) -> Any:
        raise PendingCallsLimitExceeded("too many calls")


def test_a_call_is_answered_when_ray_does_not_send_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first call finds its actor first; later ones are sent on the caller's thread, and answered on another."""
    remote, answers = RayRemote("anybody", watching()), Answers()
    monkeypatch.setattr(ray, "get_actor", lambda name, namespace: Unsendable())
    remote.call("pid", done=answers.note)
    eventually(lambda: answers.came() == 1)
    monkeypatch.setattr(remote, "_handle", Unsendable())
    remote.call("pid", done=answers.note)
    eventually(lambda: answers.came() == 2)
    assert [type(error) for error in answers.errors] == [ActorDied, ActorDied]
    assert answers.on_the_callers_thread == 0
