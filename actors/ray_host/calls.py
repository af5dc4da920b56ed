"""Another Ray actor, called by message and found by its name."""

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import ray
from ray.exceptions import ActorDiedError, RayActorError, RayTaskError

from actors.host import ActorDied

NAMESPACE = "fairlead"


class RayRemote:
    """A Ray actor, called by message, found by its name.

    Names, not handles: a handle among the arguments of an actor's constructor is an object that must outlive it, or the
    actor cannot be restarted.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._handle: Any = None

    def call(self, method: str, *args: Any, done: Callable[[Any, Exception | None], None]) -> None:
        """See `Remote`. `done` runs on a thread of Ray's."""
        handle = self._handle
        if handle is None:
            try:
                handle = self._handle = ray.get_actor(self._name, NAMESPACE)
            except ValueError:  # There is none of this name now. Told on another thread: the caller may hold a lock.
                threading.Thread(target=done, args=(None, ActorDied(method=method)), daemon=True).start()
                return
        reference = getattr(handle, method).remote(*args)
        reference.future().add_done_callback(partial(self._tell, method, done))

    def _tell(self, method: str, done: Callable[[Any, Exception | None], None], future: Any) -> None:
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
