"""Calls of other Ray actors, found by name.

Arguments are sent as one msgpack value. Ray's own pickling calls Python for every tuple of a batch, which took a tenth
of the time that it takes to lease the batch.
"""

import threading
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import msgspec
import ray
from ray.exceptions import ActorDiedError, RayActorError, RayError, RayTaskError

from fairlead.actors.runtime.host import ActorDied
from fairlead.actors.runtime.supervisor import Supervisor
from fairlead.actors.runtime.thread_host import Done, PendingCalls
from fairlead.zones.engines.api.progress import unsupervised

NAMESPACE = "fairlead"

_pack = msgspec.msgpack.Encoder().encode


def called_with(*shapes: Any) -> Callable[[Callable[..., Any]], Callable[[Any, bytes], Any]]:
    """Let a method of an actor be called by `RayRemote`, with arguments of these shapes.

    The actor's `supervisor` watches each call: a call that stalls or exits fails the actor.
    """
    unpack = msgspec.msgpack.Decoder(tuple[shapes]).decode  # type: ignore[valid-type]

    def decorate(method: Callable[..., Any]) -> Callable[[Any, bytes], Any]:
        @wraps(method)
        def receive(self: Any, packed: bytes) -> Any:
            arguments = unpack(packed)
            supervisor: Supervisor = self.supervisor
            try:
                with supervisor.watching(method.__name__):
                    return method(self, *arguments)
            except Exception:
                raise  # The caller gets any error of a method.
            except BaseException as error:  # noqa: BLE001 - Ray would consider it an ordinary exit, and restart nothing
                supervisor.fail(f"call {method.__name__!r} ended by {type(error).__name__}: {error}", error)
                raise ActorDied(method=method.__name__) from None

        del receive.__wrapped__  # Ray would check calls against its signature.
        return receive

    return decorate


class RayRemote:
    """Calls a Ray actor by its name.

    Names, not handles: an actor whose constructor got a handle cannot be restarted once the handle's object is gone.

    The caller's `supervisor` watches the threads beside the caller. Without it a call whose answer is lost would stay
    unanswered for ever.
    """

    def __init__(self, name: str, supervisor: Supervisor, pending_calls: PendingCalls | None = None) -> None:
        self._name = name
        self._supervisor = supervisor
        self._handle: Any = None
        self._pending_calls = pending_calls or PendingCalls()

    def call(self, method: str, *args: Any, done: Done) -> None:
        """See `Remote`. `done` runs on a thread of Ray, for every call, sent or not.

        The search for the actor waits for an answer, and the thread that delivers it also runs every `done`. A `done`
        may take a lock that the caller holds now. So the first call finds the actor on a thread of its own.
        """
        packed = _pack(args)
        answer = self._pending_calls.counted(method, done)
        handle = self._handle
        if handle is None:
            self._beside("finding an actor", partial(self._find_and_send, method, packed, answer))
            return
        try:
            self._send(handle, method, packed, answer)
        except RayError as error:  # The cluster does not answer, or the queue of the actor's calls is full.
            self._beside("answer", partial(self._not_sent, method, answer, error))

    def _beside(self, name: str, body: Callable[[], None]) -> None:
        threading.Thread(target=self._supervisor.supervised(name, body), name=name, daemon=True).start()

    def _find_and_send(self, method: str, packed: bytes, done: Done) -> None:
        try:
            with unsupervised():  # Ray's head may be out of reach for long.
                handle = self._handle = ray.get_actor(self._name, NAMESPACE)
        except (RayError, ValueError) as error:  # ValueError: there is no actor of this name.
            self._not_sent(method, done, error)
            return
        try:
            self._send(handle, method, packed, done)
        except RayError as error:
            self._not_sent(method, done, error)

    def _send(self, handle: Any, method: str, packed: bytes, done: Done) -> None:
        reference = getattr(handle, method).remote(packed)
        reference.future().add_done_callback(partial(self._on_answer, threading.get_ident(), method, done))

    def _not_sent(self, method: str, done: Done, error: Exception) -> None:
        self._handle = None  # The next call finds the actor again.
        done(None, ActorDied(method=method, actor=self._name, reason=f"{type(error).__name__}: {error}"[:500]))

    def _on_answer(self, caller: int, method: str, done: Done, future: Any) -> None:
        """Deliver an answer. The answer of an actor that is known to be dead comes at once, on the caller's thread."""
        if threading.get_ident() == caller:
            self._beside("answer", partial(self._deliver, method, done, future))
        else:  # Ray would only log an error of a callback.
            self._supervisor.supervised("answer", partial(self._deliver, method, done, future))()

    def _deliver(self, method: str, done: Done, future: Any) -> None:
        # This runs on the thread that delivers the answers of all calls, and delays them.
        error = future.exception()
        if error is None:
            done(future.result(), None)
        elif isinstance(error, RayActorError):
            if isinstance(error, ActorDiedError):  # For good. Another may have been started under its name.
                self._handle = None
            done(None, ActorDied(method=method, reason=type(error).__name__))
        else:
            done(None, error.cause if isinstance(error, RayTaskError) else error)
