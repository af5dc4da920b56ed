"""A run is a function of its seed: real time, randomness and threads do not change it."""

import os
import random
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from fairlead.simulation.campaign import run_seed
from fairlead.simulation.run import run
from fairlead.zones.top_level import pointers
from tests.style.sources import ROOT

RUN_SEEDS = (
    "import sys; from fairlead.simulation.campaign import run_seed; "
    "print(*(run_seed(int(s)).events for s in sys.argv[1:]))"
)


def test_the_same_seed_gives_the_same_event_log_twice() -> None:
    first, second = run(17), run(17)
    assert list(first.lines) == list(second.lines)
    assert len(first.lines) > 500


@pytest.mark.parametrize("seed", [5, pytest.param(29, marks=pytest.mark.long)])
def test_the_same_seeds_give_the_same_event_logs_in_other_processes(seed: int) -> None:
    """Other hash seeds would show an order that depends on `hash()`. The second seed has limits by policy."""
    assert len({event_log_elsewhere(seed, PYTHONHASHSEED=hash_seed) for hash_seed in ("1", "2")}) == 1


def test_the_same_seed_gives_the_same_event_log_in_a_checkout_with_a_longer_path(tmp_path: Path) -> None:
    """What is stored has the same size: by the bytes of a tenant a move is slow or fast. Seed 7 stores tracebacks."""
    checkouts = [tmp_path / "short", tmp_path / f"long{'er' * 50}"]
    for each in checkouts:
        each.symlink_to(ROOT)
    assert len({event_log_elsewhere(7, PYTHONPATH=str(each)) for each in checkouts}) == 1


def event_log_elsewhere(seed: int, **environment: str) -> str:
    """Run a seed in another process; return the digests of its events."""
    finished = subprocess.run(
        [sys.executable, "-c", RUN_SEEDS, str(seed)],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
    )
    return finished.stdout.strip()


def test_different_seeds_give_different_event_logs() -> None:
    assert len({run(seed, items=20).events for seed in range(4)}) == 4


def test_removing_a_fault_does_not_change_the_draws_of_the_others() -> None:
    """A failing run can be reduced because the plan, the load and the other faults stay the same."""
    faults = ("conflicts", "kills", "pauses")
    whole, part = run(3, faults=faults), run(3, faults=faults[:2])
    first_pause = next(number for number, line in enumerate(whole.lines) if "is paused for" in line)
    assert first_pause > 5
    assert list(whole.lines)[:first_pause] == list(part.lines)[:first_pause]


class RealWorld(BaseException):
    """The product used the real world. No `except Exception` hides this error."""


@contextmanager
def real_world_forbidden() -> Iterator[None]:
    """Let every call of the machine's clock, randomness and threads raise an error on the thread of the world.

    The world has no other thread, as the start of one raises, too. Threads of earlier tests in this process go on.
    """
    world = threading.get_ident()

    def forbidden(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def reach(*args: Any, **options: Any) -> Any:
            if threading.get_ident() == world:
                raise RealWorld(name)
            return real(*args, **options)

        return reach

    ways: list[tuple[Any, str]] = [
        *((time, name) for name in ("time", "time_ns", "monotonic", "monotonic_ns", "sleep")),
        *((time, name) for name in ("perf_counter", "perf_counter_ns")),
        *((random, name) for name in ("random", "randint", "randrange", "choice", "shuffle", "sample", "uniform")),
        (os, "urandom"),
        (uuid, "uuid4"),
        (threading.Thread, "start"),
    ]
    patches = [
        patch.object(owner, name, forbidden(f"{owner.__name__}.{name}", getattr(owner, name))) for owner, name in ways
    ]
    for each in patches:
        each.start()
    try:
        yield
    finally:
        for each in patches:
            each.stop()


@pytest.mark.parametrize("seed", [8, pytest.param(9, marks=pytest.mark.long)])
def test_no_part_of_the_product_reaches_a_real_clock_real_randomness_or_a_real_thread(seed: int) -> None:
    with real_world_forbidden():
        outcome = run_seed(seed)
    assert not outcome.broken


WAYS: list[Callable[[], Any]] = [
    lambda: [time.time()],
    lambda: time.sleep(0),
    lambda: [random.random()],
    lambda: os.urandom(16),
    lambda: threading.Thread().start(),
]


@pytest.mark.parametrize("reach", WAYS)
def test_a_planted_way_into_the_real_world_is_found(reach: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pointers, "wake", lambda *_, **__: reach())
    with real_world_forbidden():
        lines = run(8).lines
    assert any("VIOLATION" in line and "RealWorld" in line for line in lines)
