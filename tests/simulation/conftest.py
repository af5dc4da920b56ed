"""Seeds of this test run: some drawn freshly each time, and those that once failed.

They run in processes of their own, on all cores; each test waits for its seed.
"""

import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from random import SystemRandom

import pytest

from simulation.campaign import Outcome, run_seed

FRESH = 60
_CHOSEN = os.environ.get("FAIRLEAD_SEEDS")  # Such as "17,4711": these, instead of fresh ones.
_FRESH_SEEDS = [int(seed) for seed in _CHOSEN.split(",")] if _CHOSEN else SystemRandom().sample(range(10**6), FRESH)
_KEPT = Path(__file__).with_name("kept_seeds.txt")


def kept_seeds() -> list[int]:
    """Return the seeds of `kept_seeds.txt`: the first word of every line that is no comment."""
    lines = _KEPT.read_text(encoding="utf-8").splitlines()
    return [int(line.split()[0]) for line in lines if line and not line.startswith("#")]


@pytest.fixture(scope="session")
def outcomes() -> Iterator[dict[int, Future[Outcome]]]:
    """How the runs of all seeds of this test run go, by seed."""
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
        yield {seed: pool.submit(run_seed, seed) for seed in (*_FRESH_SEEDS, *kept_seeds())}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give tests that ask for a `fresh_seed` or a `kept_seed` one each."""
    if "fresh_seed" in metafunc.fixturenames:
        metafunc.parametrize("fresh_seed", _FRESH_SEEDS)
    if "kept_seed" in metafunc.fixturenames:
        metafunc.parametrize("kept_seed", kept_seeds())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the fresh seeds, so that a run can be repeated whatever became of it, and what tests have noted."""
    terminalreporter.write_line(f"simulated fresh seeds: FAIRLEAD_SEEDS={','.join(map(str, _FRESH_SEEDS))}")
    for report in terminalreporter.stats.get("passed", []):
        for name, note in report.user_properties:
            terminalreporter.write_line(f"{name}: {note}")
