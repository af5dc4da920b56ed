"""How a failed actor ends its process so that Ray restarts it: it returns its items, waits, and exits."""

import logging
import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import ray
from ray._private.state import actors as actors_of_cluster

from fairlead.actors.runtime.supervisor import Supervisor
from fairlead.actors.runtime.thread_host import thread_supervisor
from fairlead.zones.engines import Clock

log = logging.getLogger("fairlead.ray")

ASK_S_MAX = 2.0  # For an answer of Ray's head, which may be out of reach.
RETURN_ITEMS_S_MAX = 5.0  # How long a failed actor tries to return its items.
# How long it then waits before its process ends. Doubled with each restart, unless it had run for a minute.
RESTART_S_MIN = 1.0
RESTART_S_MAX = 30.0
STABLE_S = 60.0


def restarting_supervisor(clock: Clock, return_items: Callable[[], object] = lambda: None) -> Supervisor:
    """Return a supervisor that ends this process once the actor has failed, and Ray starts another.

    `return_items`: called before, for at most `RETURN_ITEMS_S_MAX`.
    """
    began_us = clock.now_us()
    reasons: SimpleQueue[str] = SimpleQueue()

    def leave() -> None:
        reason = reasons.get()
        try:
            restarts = _answer_within(_restarts, ASK_S_MAX, otherwise=0)
            pause_s = restart_pause_s(restarts, ran_s=(clock.now_us() - began_us) / 1e6)
            log.error("this actor restarts in %.0f s: %s", pause_s, reason)
            _answer_within(return_items, RETURN_ITEMS_S_MAX, otherwise=None)
            threading.Event().wait(pause_s)
        finally:
            os._exit(1)

    # The thread starts now: an actor may fail because it can start no more threads.
    threading.Thread(target=leave, name="leaving", daemon=True).start()
    return thread_supervisor(reasons.put)


def _answer_within(ask: Callable[[], Any], timeout_s: float, *, otherwise: Any) -> Any:
    """Return what `ask` returns, or `otherwise` if it raises an error, takes longer, or cannot be asked."""
    answers = [otherwise]
    asking = threading.Thread(target=lambda: answers.append(ask()), name="leaving", daemon=True)
    try:
        asking.start()
    except RuntimeError as error:  # There are too many threads.
        log.warning("this actor leaves without an answer: %s", error)
    else:
        asking.join(timeout_s)
    return answers[-1]


def restart_pause_s(restarts: int, *, ran_s: float) -> float:
    """Return how long a failed actor waits before it ends, in seconds.

    An actor that had run for a minute restarts at once. One that fails repeatedly waits twice as long each time.
    """
    return RESTART_S_MIN if ran_s >= STABLE_S else min(RESTART_S_MAX, RESTART_S_MIN * 2 ** min(restarts, 16))


def _restarts() -> int:
    """Return how often Ray has restarted this actor; 0 also if Ray does not know."""
    context = ray.get_runtime_context()
    found = actors_of_cluster(actor_id=context.get_actor_id()) or {}
    return int(found.get("NumRestarts", 0))
