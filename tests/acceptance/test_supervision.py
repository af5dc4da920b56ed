"""A loop that dies in an actor's process: the process ends, Ray starts another, and all work is done."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.fleets import config, consumer, eventually, is_whole, opened
from tests.acceptance.loads import Load, assert_all_done, assert_nothing_left

DYING = "tests.acceptance.dying_shop:app"
ROLE_OF = {"scanner": "scanner", "deadlines": "worker", "completer": "worker"}


@pytest.mark.usefixtures("cluster")
def test_an_actor_whose_loop_dies_is_replaced_and_nothing_is_lost(tmp_path: Path) -> None:
    """Before, the thread was gone in silence, and its actor stayed as it was for good."""
    chosen = config(tmp_path)
    order = tmp_path / "loop-to-die"
    with opened(chosen) as app, consumer(chosen, reference=DYING) as running:
        with Load(app, per_s=200) as load:
            for loop, role in ROLE_OF.items():
                eventually(lambda: is_whole(running, chosen))
                before = running.pids()[role]
                order.write_text(loop)
                eventually(
                    partial(is_another, running, chosen, role, before),
                    otherwise=lambda: f"{loop}: {before} and {running.pids()}, {order.exists()=}",  # noqa: B023
                )
        assert_all_done(app, load.enqueued)
        assert_nothing_left(app)
    assert not order.exists()


def is_another(running: Any, chosen: Any, role: str, before: list[int]) -> bool:
    return is_whole(running, chosen) and set(running.pids()[role]) != set(before)
