"""The network between actors: calls have latency, come late, or are lost.

A lost call ends as on a real host: after a while the caller gets `ActorDied`. It does not learn whether the call was
carried out.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any, NamedTuple

from fairlead.actors.runtime.host import ActorDied
from fairlead.simulation.actor import Actor, Call, ReplyCallback
from fairlead.simulation.host import SimulatedHost
from fairlead.simulation.world import World


class Delivery(NamedTuple):
    """How one call is delivered. The times are there and back; a lost call is noticed after `back_us`.

    `duplicate_us`: when it arrives a second time; that answer is dropped. None: it arrives once.
    """

    there_us: int
    back_us: int
    request_lost: bool = False
    reply_lost: bool = False
    duplicate_us: int | None = None


class Reply(NamedTuple):
    """An answer of an actor: `result` or `error`, one of them None. `caller` is a host, `target` an actor."""

    caller: str
    target: str
    method: str
    args: Sequence[Any]
    result: Any
    error: Exception | None


class Network:
    """The carrier of calls.

    Attributes:
      perturb: functions of faults that change the delivery of a call.
      on_call: is called with each call that is sent.
      on_reply: is called with each reply that an actor gives, even if it is lost or its caller is dead.
    """

    def __init__(self, world: World, random: Random, *, latency_us: int) -> None:
        self.world = world
        self.perturb: list[Callable[[Delivery], Delivery]] = []
        self.on_call: list[Callable[[str, str, str, Sequence[Any]], None]] = []
        self.on_reply: list[Callable[[Reply], None]] = []
        self._random = random
        self._latency_us = latency_us

    def send(
        self, caller: SimulatedHost, target: Actor, method: str, args: tuple[Any, ...], done: ReplyCallback
    ) -> None:
        """Carry a call to `target`, and its answer back to a task of `caller`, unless `caller` is killed meanwhile."""
        caller.check_alive()
        for tell in self.on_call:
            tell(caller.name, target.name, method, args)
        delivery = self._draw()
        packed = pickle.dumps(args)
        if delivery.request_lost or delivery.reply_lost:
            lost = "request" if delivery.request_lost else "reply"
            self.world.note(f"call to {target.name}.{method} loses its {lost}")
        if delivery.request_lost:
            died = ActorDied(actor=target.name, method=method, reason="unreachable")
            self.world.after(delivery.back_us, partial(_deliver, caller, done, None, died))
        else:
            call = Call(method, packed, partial(self._answer, caller, target, method, args, delivery, done))
            self.world.after(delivery.there_us, partial(target.arrive, call))
            if delivery.duplicate_us is not None:
                self.world.note(f"call to {target.name}.{method} is carried out twice")
                again = Call(method, packed, partial(self._note_reply, caller, target, method, args))
                self.world.after(delivery.duplicate_us, partial(_deliver_duplicate, target, target.host, again))

    def _answer(
        self,
        caller: SimulatedHost,
        target: Actor,
        method: str,
        args: Sequence[Any],
        delivery: Delivery,
        done: ReplyCallback,
        result: Any,
        error: Exception | None,
    ) -> None:
        self._note_reply(caller, target, method, args, result, error)
        if delivery.reply_lost:
            result, error = None, ActorDied(actor=target.name, method=method, reason="unreachable")
        result, error = pickle.loads(pickle.dumps((result, error)))
        self.world.after(delivery.back_us, partial(_deliver, caller, done, result, error))

    def _note_reply(
        self,
        caller: SimulatedHost,
        target: Actor,
        method: str,
        args: Sequence[Any],
        result: Any,
        error: Exception | None,
    ) -> None:
        for note in self.on_reply:
            note(Reply(caller.name, target.name, method, args, result, error))

    def _draw(self) -> Delivery:
        delivery = Delivery(self._draw_us(), self._draw_us())
        for perturb in self.perturb:
            delivery = perturb(delivery)
        return delivery

    def _draw_us(self) -> int:
        return int(self._latency_us * (0.5 + self._random.expovariate(2.0)))


def _deliver_duplicate(target: Actor, incarnation: SimulatedHost | None, call: Call) -> None:
    """Deliver a call a second time, to the same incarnation, as if it were sent twice on one connection."""
    if target.host is incarnation and incarnation is not None:
        target.arrive(call)


def _deliver(caller: SimulatedHost, done: ReplyCallback, result: Any, error: Exception | None) -> None:
    if not caller.dead:
        caller.spawn("answer", partial(done, result, error))


class SimulatedRemote:
    """An actor as its caller sees it; see `fairlead.actors.runtime.host.Remote`."""

    def __init__(self, network: Network, caller: SimulatedHost, target: Actor) -> None:
        self._network = network
        self._caller = caller
        self._target = target

    def call(self, method: str, *args: Any, done: ReplyCallback) -> None:
        """See `Remote`. The answer comes back even if the actor died; then the answer is `ActorDied`."""
        self._network.send(self._caller, self._target, method, args, done)
