"""A deliberate bug: a fragment of a product function's source is replaced in memory, for a while.

The changed source is compiled with the globals of the function's module. The result replaces the function's code
object, so every reference to the function runs the bug. The fragment must occur exactly once. If a change of the
product removes the fragment, the mutation raises an error, and the author of the change describes the bug anew.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType
from typing import Any, NamedTuple

from fairlead.simulation.run import run
from fairlead.simulation.trial import Report
from fairlead.simulation.world import Violation

SEEDS = range(200)  # The campaign within which every bug must be found.


class Edit(NamedTuple):
    """One fragment of a function's source, and its replacement."""

    function: Callable[..., Any]
    fragment: str
    bug: str


class Catch(NamedTuple):
    """The first seed at which an expected oracle failed."""

    seed: int
    violation: Violation


@dataclass(frozen=True, slots=True)
class Mutation:
    """One bug, applied while `planted()` lasts.

    Attributes:
      title: the wrong behaviour, as a sentence.
      promises: the promises of the oracles that count as finding the bug. A failure of another oracle does not count.
      world: the run in which they find it; default: that of the standard workload.
    """

    title: str
    edits: tuple[Edit, ...]
    promises: tuple[str, ...]
    world: Callable[..., Report] = run

    def __str__(self) -> str:
        return self.title

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Plant the bug in this process."""
        by_function: dict[Any, list[Edit]] = {}
        for edit in self.edits:
            by_function.setdefault(edit.function, []).append(edit)
        originals = {function: function.__code__ for function in by_function}
        for function, edits in by_function.items():
            function.__code__ = _with_bug(function, edits)
        try:
            yield
        finally:
            for function, code in originals.items():
                function.__code__ = code

    def first_catch(self, seeds: Iterable[int], **chosen: Any) -> Catch | None:
        """Run the bug's world, seed after seed, until the bug is found; `chosen`: see `fairlead.simulation.run.run`."""
        with self.planted():
            for seed in seeds:
                for violation in self.world(seed, **chosen).violations:
                    if violation.oracle in self.promises:
                        return Catch(seed, violation)
        return None


def mutation(
    title: str,
    *edits: tuple[Callable[..., Any], str, str],
    found_by: Iterable[str],
    world: Callable[..., Report] = run,
) -> Mutation:
    """Return a mutation with these edits: function, fragment, replacement."""
    return Mutation(title, tuple(Edit(*edit) for edit in edits), tuple(found_by), world)


def in_a_race(title: str, *edits: tuple[Callable[..., Any], str, str]) -> Mutation:
    """Return a mutation that no oracle needs to find: a race plants it, and ends badly."""
    return mutation(title, *edits, found_by=())


def _with_bug(function: Callable[..., Any], edits: Sequence[Edit]) -> CodeType:
    source = inspect.getsource(function)
    where = f"{function.__module__}.{function.__qualname__}"
    for edit in edits:
        times = source.count(edit.fragment)
        assert times == 1, f"{where} holds this {times} times instead of once: {edit.fragment!r}"
        source = source.replace(edit.fragment, edit.bug)
    # Not by way of `ast.parse`: CPython 3.11 fails in it if the garbage collector runs finalizers that parse, too.
    text = textwrap.dedent(source)
    undecorated = text[0 if text.startswith("def ") else text.index("\ndef ") :]
    made: dict[str, Any] = {}
    exec(compile(undecorated, f"<{where}, with a bug>", "exec"), function.__globals__, made)
    (definition,) = made.values()
    code = definition.__code__
    assert isinstance(code, CodeType)
    return code
