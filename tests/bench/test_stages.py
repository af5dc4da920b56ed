"""The stages from enqueue to completion: all of them are measured, and their times add up."""

from __future__ import annotations

import threading
from pathlib import Path

from bench.stages import Line, Spent, figures, measure
from tests.acceptance.fleets import eventually


def test_every_item_goes_from_enqueue_to_completion(tmp_path: Path) -> None:
    line = Line(tmp_path / "store")
    line.run(200)
    line.stop()
    assert line.completed() == 200
    assert all(line.spent[name].total_ns > 0 for name in ("enqueue", "scan", "dequeue", "run"))


def test_a_stopped_line_leaves_no_thread_behind(tmp_path: Path) -> None:
    """Before, the manager's thread ran on as long as the process lived."""
    before = set(threading.enumerate())
    line = Line(tmp_path / "store")
    line.run(20)
    line.stop()
    eventually(lambda: set(threading.enumerate()) <= before, within_s=10.0, otherwise=threading.enumerate)


def test_the_time_of_a_stage_outside_its_transactions_is_another_stage() -> None:
    """The time of `serve` is divided into dequeue and hand-over, and that of the worker into run and completion."""
    spent = {
        "enqueue": Spent(total_ns=4_000, inside_ns=3_000, body_ns=1_000, written_bytes=100),
        "scan": Spent(total_ns=1_000),
        "dequeue": Spent(total_ns=5_000, inside_ns=4_000, body_ns=3_000, written_bytes=200),
        "run": Spent(total_ns=7_000, inside_ns=3_000, body_ns=2_000, written_bytes=50),
    }
    rows = figures(spent, items=1)
    assert {name: row["us"] for name, row in rows.items()} == {
        "enqueue": 4.0, "scan": 1.0, "dequeue": 4.0, "hand_over": 1.0, "run": 4.0, "complete": 3.0, "all": 17.0,
    }  # fmt: skip
    assert (rows["dequeue"]["body_us"], rows["dequeue"]["commit_us"], rows["complete"]["written_bytes"]) == (
        3.0,
        1.0,
        50,
    )


def test_the_floor_is_measured_with_the_stages(tmp_path: Path) -> None:
    floor = measure(tmp_path, 100)["floor"]
    assert floor["write"]["us"] > 0
    assert floor["lease_and_complete"]["us"] > 0
