"""Time and randomness arrive as arguments; otherwise a seed in the simulator would not replay."""

import ast
from collections.abc import Iterator

import pytest

from tests.style.sources import Offence, Source, assert_none, place, product_sources, references, source

CLOCKS = {
    *(f"time.{name}" for name in ("time", "monotonic", "perf_counter", "process_time", "thread_time")),
    *(f"time.{name}_ns" for name in ("time", "monotonic", "perf_counter", "process_time", "thread_time")),
    *(f"datetime.datetime.{name}" for name in ("now", "utcnow", "today")),
    "datetime.date.today",
}
SLEEPS = {"time.sleep", "asyncio.sleep", "threading.Timer"}
ENTROPY = {"os.urandom", "os.getrandom", "uuid.uuid1", "uuid.uuid4"}


def real_time_or_randomness(source: Source) -> Iterator[Offence]:
    """Yield each use of the machine's clock, sleep or entropy; `random.Random(seed)` is none."""
    for node, name in references(source.tree):
        if name in CLOCKS or name in SLEEPS:
            yield Offence(place(source, node), f"{name} reaches the real clock", "take a clock as an argument")
        elif name in ENTROPY or name.startswith("secrets."):
            yield Offence(place(source, node), f"{name} reaches real randomness", "take a random.Random, or the bytes")
        elif name.startswith("random.") and name.split(".")[1] != "Random":
            yield Offence(place(source, node), f"{name} shares one hidden state", "take a random.Random as an argument")
    names = dict(references(source.tree))
    for call in ast.walk(source.tree):
        if isinstance(call, ast.Call) and names.get(call.func) == "random.Random" and not call.args:
            yield Offence(
                place(source, call), "random.Random() seeds itself", "pass it a seed, or take it as an argument"
            )


def test_nothing_below_the_face_reaches_the_real_clock_or_real_randomness() -> None:
    assert_none(real_time_or_randomness, product_sources("zones", "records", "actors", "workflows", "simulation"))


@pytest.mark.parametrize(
    "planted",
    [
        "import time\ntime.time()",
        "import time as t\nt.sleep(1)",
        "from time import monotonic_ns as now\nclock = now",
        "import datetime\ndatetime.datetime.now()",
        "from datetime import datetime, UTC\ndatetime.now(UTC)",
        "import random\nrandom.choice([1])",
        "import random\nrandom.Random()",
        "from random import SystemRandom\nSystemRandom()",
        "import os\nos.urandom(16)",
        "import uuid\nuuid.uuid4()",
        "from secrets import token_bytes\ntoken_bytes(16)",
        "import asyncio\nasync def f():\n    await asyncio.sleep(1)",
    ],
)
def test_a_planted_clock_or_dice_is_found(planted: str) -> None:
    assert len(list(real_time_or_randomness(source("zones/planted.py", planted)))) == 1


def test_a_seeded_generator_and_a_clock_argument_are_allowed() -> None:
    text = "import random\ndef f(clock, rng: random.Random):\n    return random.Random(rng.random() + clock.time())"
    assert list(real_time_or_randomness(source("zones/planted.py", text))) == []
