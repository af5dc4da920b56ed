"""The engines answer as FoundationDB did, step by step."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

from fairlead.zones.engines import open as open_database
from fairlead.zones.engines.api.errors import error_code
from tests.clocks import ManualClock
from tests.contract.recorded import Interpreter, programs

# The only deviation, which the docstring of `fairlead.zones.engines` states: LMDB accepts keys of at most 511 bytes.
KEYS_TOO_LONG_FOR_LMDB = {"key of the largest size"}

SHARED_MEMORY = Path("/dev/shm")


@pytest.mark.parametrize("engine", ["memory", "embedded"])
def test_every_recorded_answer_of_foundationdb_matches(engine: str, tmp_path: Path) -> None:
    # Thousands of small stores are made: in a file system in memory, if there is one.
    place = SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else tmp_path
    store = place / f"recorded-answers-{os.getpid()}"
    deviations = []
    count = 0
    for program in programs():
        clock = ManualClock()
        url = "memory:" if engine == "memory" else f"embedded:{store}"
        db = open_database(url, clock=clock, random=random.Random(1))
        answers = Interpreter(db, clock.sleep_us).run(program["steps"])
        db.close()
        shutil.rmtree(store, ignore_errors=True)
        count += 1
        if answers != program["answers"] and not (engine == "embedded" and program["seed"] in KEYS_TOO_LONG_FOR_LMDB):
            step = next(i for i, answer in enumerate(answers) if answer != program["answers"][i])
            deviations.append((program["seed"], program["steps"][step], answers[step], program["answers"][step]))
    assert deviations == []
    assert count == 2_587


def test_a_key_too_long_for_lmdb_is_refused_with_both_limits_named(tmp_path: Path) -> None:
    db = open_database(f"embedded:{tmp_path}", clock=ManualClock(), random=random.Random(1))
    tr = db.create_transaction()
    tr.set(bytes(512), b"")
    with pytest.raises(db.errors, match="511 bytes, FoundationDB 10,000") as caught:
        tr.commit().wait()
    assert error_code(caught.value) == 2102
    db.close()
