"""Seeds of this test run: some drawn freshly each time, and those that once failed."""

import os
from pathlib import Path

import pytest

from tests.conftest import SEEDS

_CORPUS = Path(__file__).with_name("corpus.txt")


def corpus_seeds() -> list[int]:
    """Return the seeds of `corpus.txt`: the first word of every line that is not a comment."""
    lines = _CORPUS.read_text(encoding="utf-8").splitlines()
    return [int(line.split()[0]) for line in lines if line and not line.startswith("#")]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that has a parameter `fresh_seed` or `corpus_seed` with each such seed."""
    if "fresh_seed" in metafunc.fixturenames:
        metafunc.parametrize("fresh_seed", [int(seed) for seed in os.environ[SEEDS].split(",")])
    if "corpus_seed" in metafunc.fixturenames:
        metafunc.parametrize("corpus_seed", corpus_seeds())
