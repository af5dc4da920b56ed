"""Threads that take turns, with an exception raised in one of them at any instant at which CPython may raise it.

One thread of a stage runs at a time; a seed decides which goes on, wherever CPython may switch: after calls, where
loops turn back, where functions begin, and wherever a thread waits. There, and in the middle of a wait, the handler of
a signal may run, and raise. The code under test is the product's own, its locks are the stage's.
"""

from __future__ import annotations

import dis
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache
from random import Random
from types import CodeType, FrameType, ModuleType, SimpleNamespace
from typing import Any

TURNS_MAX = 5_000  # A play takes some hundred.
WAITS = "waits"
SWITCHES = 0.05  # The part of the instants at which another thread goes on.


Interruptions = Mapping[str, Collection[int]]  # By thread: at which of its instants, counted from 1.


class Interruption(BaseException):
    """What a signal's handler raises."""


class Hang(Exception):
    """Threads wait, and nobody is left who could wake them; or they ask for ever."""


class _Player:
    def __init__(self, name: str) -> None:
        self.name = name
        self.go = threading.Semaphore(0)
        self.condition: Callable[[], bool] | None = None
        self.points = 0
        self.over = False
        self.error: BaseException | None = None


class Stage:
    """Threads of which one runs at a time.

    Attributes:
      interrupted: the names of those in which an exception was raised.
    """

    def __init__(self, seed: int, interruptions: Interruptions, of: Iterable[ModuleType], *, within: str = "") -> None:
        """Prepare a play.

        Args:
          seed: decides who goes on.
          interruptions: when an exception is raised.
          of: the modules whose instants count.
          within: only those within functions of this name count, or within `WAITS`; all if empty.
        """
        self.random = Random(seed)
        self.interrupted: set[str] = set()
        self._due = interruptions
        self._files = frozenset(module.__file__ for module in of)
        self._within = within
        self._players: dict[int, _Player] = {}
        self._back = threading.Semaphore(0)

    def play(self, bodies: Mapping[str, Callable[[], None]]) -> None:
        """Run each body in a thread of its own, to its end.

        Raises:
          Hang: not all get there.
          What a body raised, but for an `Interruption`.
        """
        players = [_Player(name) for name in bodies]
        for player, body in zip(players, bodies.values(), strict=True):
            threading.Thread(target=self._perform, args=(player, body), daemon=True).start()
        turns = 0
        while waiting := [player for player in players if not player.over]:
            able = [player for player in waiting if player.condition is None or player.condition()]
            turns += 1
            if not able or turns > TURNS_MAX:
                raise Hang(", ".join(player.name for player in waiting))
            self.random.choice(able).go.release()
            self._back.acquire()
        for player in players:
            if player.error is not None:
                raise player.error

    def wait(self, condition: Callable[[], bool], *, timed: bool = False) -> bool:
        """Wait until `condition()`; if `timed`, perhaps not so long. Whether it holds now."""
        player = self._players.get(threading.get_ident())
        if player is None:
            assert condition(), "the test itself must not wait"
            return True
        if self._within in ("", WAITS):
            self._come_to(player)
        if not condition():
            self._leave_to_others(player, None if timed else condition)
        sys.settrace(self._trace)  # An exception that a trace function raises is its last.
        return condition()

    def switch(self) -> None:
        """Let others go on."""
        self.wait(lambda: False, timed=True)

    def locks(self) -> SimpleNamespace:
        """Return what stands in for `threading` and `_thread` in a module."""
        return SimpleNamespace(
            Lock=lambda: StagedLock(self),
            RLock=lambda: StagedRLock(self),
            allocate_lock=lambda: StagedLock(self),
            LockType=StagedLock,
        )

    def _perform(self, player: _Player, body: Callable[[], None]) -> None:
        player.go.acquire()
        self._players[threading.get_ident()] = player
        sys.settrace(self._trace)
        try:
            body()
        except Interruption:
            pass
        except Exception as error:  # noqa: BLE001 - `play` raises it
            player.error = error
        finally:
            sys.settrace(None)
            player.over = True
            self._back.release()

    def _trace(self, frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code.co_filename not in self._files:
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return self._trace_opcodes

    def _trace_opcodes(self, frame: FrameType, event: str, _: object) -> Any:
        if event == "opcode" and frame.f_lasti in _points(frame.f_code):
            player = self._players[threading.get_ident()]
            if self._within in ("", frame.f_code.co_name):
                self._come_to(player)
            if self.random.random() < SWITCHES:
                self._leave_to_others(player, None)
        return self._trace_opcodes

    def _come_to(self, player: _Player) -> None:
        player.points += 1
        if player.points in self._due.get(player.name, ()):
            self.interrupted.add(player.name)
            raise Interruption

    def _leave_to_others(self, player: _Player, condition: Callable[[], bool] | None) -> None:
        player.condition = condition
        self._back.release()
        player.go.acquire()
        player.condition = None


@cache
def _points(code: CodeType) -> frozenset[int]:
    """Return before which instructions CPython looks whether a signal came, or another thread wants to run."""
    points = set()
    after_check = False
    for instruction in dis.get_instructions(code):
        if after_check:
            points.add(instruction.offset)
        after_check = instruction.opname == "RESUME" or instruction.opname.startswith("CALL")
        if instruction.opname.startswith("JUMP_BACKWARD"):
            points.add(instruction.argval)
    return frozenset(points)


class StagedLock:
    """A lock."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.taken = False

    def acquire(self) -> bool:
        """Wait for it and take it."""
        self._stage.wait(lambda: not self.taken)
        self.taken = True
        return True

    def release(self) -> None:
        """Give it up."""
        if not self.taken:
            raise RuntimeError("release unlocked lock")
        self.taken = False

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class StagedRLock:
    """A lock that its owner may take again."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.owner = self.times = 0

    def acquire(self, timeout: float = -1) -> bool:
        """Wait for it and take it; with a timeout, perhaps in vain."""
        me = threading.get_ident()
        if not self._stage.wait(lambda: self.owner in (0, me), timed=timeout >= 0):
            return False
        self.owner = me
        self.times += 1
        return True

    def release(self) -> None:
        """Give it up."""
        if self.owner != threading.get_ident():
            raise RuntimeError("cannot release un-acquired lock")
        self.times -= 1
        if not self.times:
            self.owner = 0
