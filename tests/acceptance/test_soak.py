"""A steady load, and processes that are killed and stopped at random all the while: nothing is lost, doubled, leaked.

FAIRLEAD_SOAK_S is how long the long form takes; ten minutes by default.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from fairlead import App, Config
from tests.acceptance.fleets import ROLES, config, consumer, eventually, paused
from tests.acceptance.loads import Load, assert_nothing_left, depth
from tests.acceptance.soaking import SOAK_S, EnqueueCounts, Memory

pytestmark = pytest.mark.usefixtures("cluster")

PER_S = 100
LEASE_MS = 1_000


class Pace(NamedTuple):
    """How long it is calm between two faults, and how long a process is stopped: from, to, in seconds."""

    calm_s: tuple[float, float]
    pause_s: tuple[float, float]


SHORT = Pace(calm_s=(0.1, 1.0), pause_s=(0.1, 2.5))
LONG = Pace(calm_s=(0.5, 3.0), pause_s=(0.1, 7.5))  # Longer than a snapshot is kept for a process that runs.

# A leak of 100 bytes per item would be 6 MB in ten minutes. Memory of an actor that leaks nothing moves by less than
# half of that.
GROWTH_BYTES_MAX = 6_000_000
# A process that is stopped while it reads pins what is rewritten meanwhile, some 3 MB a second under this load; that is
# used again once it goes on. Pages that nobody gave back would be 1.5 GB after ten minutes.
STORE_BYTES_MAX_PER_S = 6_000_000
STORE_BYTES_MAX = 4_000_000  # Of a store in which nobody was stopped.


@pytest.fixture
def chosen(tmp_path: Path) -> Config:
    return config(tmp_path, lease_ms=LEASE_MS)


def disturb(victim: Any, spared: Any, random: Random, pace: Pace) -> str:
    """Kill a random process of `victim`, or stop one of either consumer for a while; return what was done."""
    kill = random.random() < 0.5
    role = random.choice(ROLES)
    pids = (victim if kill else random.choice((victim, spared))).pids()[role]
    if not pids:  # It is being restarted.
        return "nothing"
    pid = random.choice(pids)
    if kill:
        os.kill(pid, signal.SIGKILL)
        return f"{role} killed"
    with paused(pid):
        time.sleep(random.uniform(*pace.pause_s))
    return f"{role} stopped"


def soak(app: App, chosen: Config, store: Path, *, duration_s: float, pace: Pace) -> None:
    """Run two consumers, one of which is spared from kills so that its memory can be followed; check and report."""
    seed = time.time_ns() % 10_000
    random = Random(seed)
    ledger, memory = EnqueueCounts(app), Memory()
    faults: Counter[str] = Counter()
    sizes: list[int] = []
    with consumer(chosen) as victim, consumer(chosen) as spared:
        with Load(app, per_s=PER_S, kinds=("transactional", "fenced"), takes_ms=1) as load:
            begun = time.monotonic()
            while time.monotonic() - begun < duration_s:
                time.sleep(random.uniform(*pace.calm_s))
                ledger.settle()
                memory.sample(spared.pids())
                sizes.append(store.stat().st_size)
                faults[disturb(victim, spared, random, pace)] += 1
        eventually(lambda: depth(app) == 0, otherwise=lambda: f"{depth(app)} items are left")
        ledger.settle()
        memory.sample(spared.pids())
        assert_nothing_left(app)
    lost = set(load.enqueued) - ledger.settled
    grown = memory.growth_bytes()
    sys.stdout.write(
        f"soak of {duration_s:.0f} s, seed {seed}: {len(load.enqueued):,} items, lost {len(lost)}, "
        f"doubled {len(ledger.doubled)}, leftover keys 0; faults {dict(sorted(faults.items()))}; memory grew by "
        f"{ {role: f'{bytes_ / 1e6:+.1f} MB' for role, bytes_ in grown.items()} }; store "
        f"{sizes[len(sizes) // 2] / 1e6:.1f} MB at half-time, {store.stat().st_size / 1e6:.1f} MB at the end\n"
    )
    assert (lost, ledger.doubled) == (set(), [])
    assert ledger.settled == set(load.enqueued), "effects of items that nobody enqueued"
    assert set(grown) == set(ROLES)
    assert max(grown.values()) < GROWTH_BYTES_MAX, grown
    assert store.stat().st_size <= STORE_BYTES_MAX + STORE_BYTES_MAX_PER_S * pace.pause_s[1]


def test_a_short_soak_loses_doubles_and_leaks_nothing(
    app: App, chosen: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with capsys.disabled():
        soak(app, chosen, tmp_path / "main" / "data.mdb", duration_s=10, pace=SHORT)


@pytest.mark.long
@pytest.mark.timeout(SOAK_S + 300)
def test_a_long_soak_loses_doubles_and_leaks_nothing(
    app: App, chosen: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with capsys.disabled():
        soak(app, chosen, tmp_path / "main" / "data.mdb", duration_s=SOAK_S, pace=LONG)


# --- That a soak would notice ---


@pytest.fixture
def ledger() -> Iterator[tuple[App, EnqueueCounts]]:
    app = App("memory:")
    yield app, EnqueueCounts(app)
    app.close()


def take_effect(app: App, number: int) -> None:
    app.tenant("shop", "user 0").transact(lambda tr: tr.add(("done", number), 1))


def test_an_effect_that_happens_twice_before_it_is_settled_is_found(ledger: tuple[App, EnqueueCounts]) -> None:
    app, accounts = ledger
    for number in (7, 8, 8):
        take_effect(app, number)
    accounts.settle()
    assert (accounts.settled, accounts.doubled) == ({7, 8}, [8])


def test_an_effect_that_happens_again_after_it_was_settled_is_found(ledger: tuple[App, EnqueueCounts]) -> None:
    app, accounts = ledger
    for _ in range(2):
        take_effect(app, 7)
        accounts.settle()
    assert (accounts.settled, accounts.doubled) == ({7}, [7])


def test_memory_that_grows_is_found_and_a_process_that_started_anew_is_not_compared_with_another() -> None:
    memory = Memory()
    hog = bytearray()
    for _ in range(20):
        hog += os.urandom(1_000_000)
        memory.sample({"worker": [os.getpid(), 2**22 + 1], "scanner": []})
    grown = memory.growth_bytes()
    assert set(grown) == {"worker"}
    assert grown["worker"] > GROWTH_BYTES_MAX
