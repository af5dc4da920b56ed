"""How an actor that has failed ends its process, so that Ray starts it anew: it gives back, waits, and exits."""

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

ASK_S_MAX = 2.0  # Of Ray's head, which may be out of reach.
GIVE_BACK_S_MAX = 5.0  # How long an actor that has failed tries to give back what it holds.
# How long it then waits before its process ends: doubled with each restart, unless it had lived for a minute.
RESTART_S_MIN = 1.0
RESTART_S_MAX = 30.0
LIVED_S = 60.0


def restarting_supervisor(clock: Clock, give_back: Callable[[], object] = lambda: None) -> Supervisor:
    """Return a supervisor that ends this process once the actor has failed, and Ray starts another.

    `give_back`: what the actor does before, if it still can within `GIVE_BACK_S_MAX`.
    """
    began_us = clock.now_us()
    reasons: SimpleQueue[str] = SimpleQueue()

    def leave() -> None:
        reason = reasons.get()
        try:
            restarts = _answer_within(_restarts, ASK_S_MAX, otherwise=0)
            pause_s = restart_pause_s(restarts, lived_s=(clock.now_us() - began_us) / 1e6)
            log.error("this actor starts anew in %.0f s: %s", pause_s, reason)
            _answer_within(give_back, GIVE_BACK_S_MAX, otherwise=None)
            threading.Event().wait(pause_s)
        finally:
            os._exit(1)

    # It waits from the start: an actor may fail because no thread can be started any more.
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


def restart_pause_s(restarts: int, *, lived_s: float) -> float:
    """Return how long an actor that has failed waits before it ends, in seconds.

    One that had lived for a while is back at once; one that fails again and again waits twice as long each time.
    """
    return RESTART_S_MIN if lived_s >= LIVED_S else min(RESTART_S_MAX, RESTART_S_MIN * 2 ** min(restarts, 16))


def _restarts() -> int:
    """Return how often Ray has restarted this actor; 0 also if Ray does not say."""
    context = ray.get_runtime_context()
    found = actors_of_cluster(actor_id=context.get_actor_id()) or {}
    return int(found.get("NumRestarts", 0))
