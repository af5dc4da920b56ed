"""Which locks a replay holds where it stands, so that a workflow asks for locks in one order.

The order is checked per branch of an async workflow, because in which order the branches take theirs differs from
replay to replay. A plain function has one branch.
"""

from collections.abc import Collection, Sequence
from contextvars import ContextVar
from typing import NamedTuple

from fairlead.workflows.errors import LockOrder
from fairlead.zones.layout import Tenant
from fairlead.zones.workflow.locks import shown_lock


class LockName(NamedTuple):
    """A lock: its tenant, and its packed key. Its order among others is the order in which locks are taken."""

    tenant: Tenant
    packed: bytes

    def __str__(self) -> str:
        return f"{shown_lock(self.packed)} of {self.tenant}"


def refusal(wanted: Sequence[LockName], held: Collection[LockName], kind: str) -> LockOrder | None:
    """Return why locks, which are sorted, cannot be taken by a caller that holds others; None: they can.

    `kind`: of the item that asks.
    """
    again = next((each for each in wanted if each in held), None)
    if again is not None:
        return held_already(again, kind)
    highest = max(held, default=wanted[0])
    if wanted[0] < highest:
        return LockOrder(reason=LockOrder.OUT_OF_ORDER, kind=kind, lock=str(wanted[0]), held=str(highest))
    return None


def held_already(lock: LockName, kind: str) -> LockOrder:
    """Return the error of a lock that the caller holds already."""
    return LockOrder(reason=LockOrder.HELD, kind=kind, lock=str(lock), held=str(lock))


class _Branch(NamedTuple):
    """What a branch holds. `replay`: stands for the replay."""

    replay: object
    locks: frozenset[LockName]


_held: ContextVar[_Branch | None] = ContextVar("fairlead_locks", default=None)


class HeldLocks:
    """The locks of one replay."""

    def __init__(self) -> None:
        self._replay = object()
        self._all: set[LockName] = set()  # Of all branches.

    def __contains__(self, lock: LockName) -> bool:
        return lock in self._all

    def __len__(self) -> int:
        return len(self._all)

    def refusal(self, wanted: Sequence[LockName], kind: str) -> LockOrder | None:
        """Return why this branch cannot take locks, which are sorted; None: it can. `kind`: of its item."""
        return refusal(wanted, self._here, kind)

    def add(self, lock: LockName) -> None:
        """Note that this branch holds a lock from now on."""
        self._all.add(lock)
        _held.set(_Branch(self._replay, self._here | {lock}))

    def remove(self, lock: LockName) -> None:
        """Note that a lock is released."""
        self._all.discard(lock)
        _held.set(_Branch(self._replay, self._here - {lock}))

    def shown(self) -> list[str]:
        """Return all locks as people read them."""
        return [str(lock) for lock in sorted(self._all)]

    @property
    def _here(self) -> frozenset[LockName]:
        found = _held.get()
        return found.locks if found is not None and found.replay is self._replay else frozenset()
