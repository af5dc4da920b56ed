"""Another Ray actor, called by message and found by its name.

Arguments travel as one msgpack text: Ray's own pickling calls back into Python for every tuple of a batch, which took a
tenth of the time that leasing it takes.
"""

import threading
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import msgspec
import ray
from ray.exceptions import ActorDiedError, RayActorError, RayError, RayTaskError

from actors.host import ActorDied
from actors.thread_host import Done, Unanswered

NAMESPACE = "fairlead"

# What Ray raises instead of finding an actor or sending to it: there is none of this name (ValueError), the cluster
# does not answer, the queue of its calls is full.
NOT_SENT = (RayError, ValueError)

_pack = msgspec.msgpack.Encoder().encode


def called_with(*shapes: Any) -> Callable[[Callable[..., Any]], Callable[[Any, bytes], Any]]:
    """Let a method of an actor be called by `RayRemote`, with arguments of these shapes."""
    unpack = msgspec.msgpack.Decoder(tuple[shapes]).decode  # type: ignore[valid-type]

    def decorate(method: Callable[..., Any]) -> Callable[[Any, bytes], Any]:
        @wraps(method)
        def receive(self: Any, packed: bytes) -> Any:
            return method(self, *unpack(packed))

        del receive.__wrapped__  # Ray would check calls against its signature.
        return receive

    return decorate


class RayRemote:
    """A Ray actor, called by message, found by its name.

    Names, not handles: a handle among the arguments of an actor's constructor is an object that must outlive it, or the
    actor cannot be restarted.
    """

    def __init__(self, name: str, unanswered: Unanswered | None = None) -> None:
        self._name = name
        self._handle: Any = None
        self._unanswered = unanswered or Unanswered()

    def call(self, method: str, *args: Any, done: Done) -> None:
        """See `Remote`. `done` runs on a thread of Ray's; it runs for every call, sent or not.

        Finding the actor waits for an answer, which comes through the thread that also runs every `done`; and a `done`
        takes the lock that the caller may be holding now. So the first call finds it on a thread of its own.
        """
        packed = _pack(args)
        answer = self._unanswered.counted(method, done)
        handle = self._handle
        if handle is None:
            threading.Thread(target=self._find_and_send, args=(method, packed, answer), daemon=True).start()
            return
        try:
            self._send(handle, method, packed, answer)
        except NOT_SENT as error:
            threading.Thread(target=self._not_sent, args=(method, answer, error), daemon=True).start()

    def _find_and_send(self, method: str, packed: bytes, done: Done) -> None:
        try:
            handle = self._handle = ray.get_actor(self._name, NAMESPACE)
            self._send(handle, method, packed, done)
        except NOT_SENT as error:
            self._not_sent(method, done, error)

    def _send(self, handle: Any, method: str, packed: bytes, done: Done) -> None:
        reference = getattr(handle, method).remote(packed)
        reference.future().add_done_callback(partial(self._hear, threading.get_ident(), method, done))

    def _not_sent(self, method: str, done: Done, error: Exception) -> None:
        self._handle = None  # The next call finds the actor anew.
        done(None, ActorDied(method=method, actor=self._name, reason=f"{type(error).__name__}: {error}"[:500]))

    def _hear(self, caller: int, method: str, done: Done, future: Any) -> None:
        """Take an answer. One that was there already, from an actor known to be dead, comes on the caller's thread."""
        if threading.get_ident() == caller:
            threading.Thread(target=self._tell, args=(method, done, future), daemon=True).start()
        else:
            self._tell(method, done, future)

    def _tell(self, method: str, done: Done, future: Any) -> None:
        # This runs on the thread that serves all calls of the process: while it works, none of them comes back.
        error = future.exception()
        if error is None:
            done(future.result(), None)
        elif isinstance(error, RayActorError):
            if isinstance(error, ActorDiedError):  # for good; another may have been started under its name
                self._handle = None
            done(None, ActorDied(method=method, reason=type(error).__name__))
        else:
            done(None, error.cause if isinstance(error, RayTaskError) else error)
