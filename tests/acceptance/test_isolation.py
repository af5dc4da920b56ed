"""An item that kills its worker's process, isolated on Ray: it takes nobody else's item along, and nobody waits."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from fairlead import App
from fairlead.zones.queue.dead_letters import listing
from fairlead.zones.settings import ZoneSettings
from tests.acceptance.fleets import config, consumer, eventually, is_whole, opened
from tests.acceptance.loads import depth
from tests.acceptance.shop import payload

WORKERS = 2
QUICK = 20
QUICK_S = 1.0
DEATHS = (
    1 + ZoneSettings().expiries_before_isolation
)  # The first does not count: nobody wrote that the item had started.


@pytest.mark.usefixtures("cluster")
def test_an_item_that_kills_its_process_becomes_a_dead_letter_while_long_jobs_go_on_and_others_run_at_once(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Before, it waited for the long jobs, and all that came later waited for it."""
    chosen = config(tmp_path, workers=WORKERS)
    killer, long = tmp_path / "killer", tmp_path / "long"
    with opened(chosen) as app, consumer(chosen) as running:
        poison = app.tenant("shop", "poison")
        poison.enqueue("killer_when_told", payload(0, path=str(killer), waits_from=DEATHS + 1))
        eventually(lambda: len(begun(killer)) >= DEATHS and is_whole(running, chosen))

        workers = running.pids()["worker"]
        numbers = 0
        while {int(pid) for _, pid in begun(long)} != set(workers):  # A manager hears later of one that is back.
            app.tenant("shop", f"long {numbers}").enqueue("until_told", payload(numbers, path=str(long)))
            numbers += 1
            eventually(lambda: len(begun(long)) == numbers)  # noqa: B023
        eventually(lambda: len(begun(killer)) == DEATHS + 1)
        assert [int(begun(killer)[-1][1])] == running.pids()["isolated"]

        while_it_runs = run_quick_ones(app, tmp_path / "while it runs")
        killer.touch()
        while_it_dies = run_quick_ones(app, tmp_path / "while it dies")
        eventually(lambda: len(poison.dead_letters()) == 1, otherwise=lambda: begun(killer))
        record_property("quick items", f"slowest {max(while_it_runs):.3f} s, while it dies {max(while_it_dies):.3f} s")
        assert max(while_it_runs) < QUICK_S, while_it_runs
        assert max(while_it_dies) < QUICK_S, while_it_dies

        assert running.pids()["worker"] == workers, "no other process died"
        long.touch()
        eventually(lambda: depth(app) == 0)
        ended = long.with_name("long.ended").read_text().splitlines()
        assert sorted(ended) == sorted(f"{number} told" for number in range(numbers))
        shard = app.shards["main"]
        dead_letters = shard.transact(lambda attempt: list(listing(attempt.tr, shard.layout, items_max=10)))
        assert [(each.record.item.kind, each.record.reason) for each in dead_letters] == [
            ("killer_when_told", "lapsed")
        ]
        assert len(begun(killer)) == DEATHS + 1


def begun(path: Path) -> Sequence[list[str]]:
    """Return what handlers noted when they began: their item's number and their process."""
    notes = path.with_name(f"{path.name}.begun")
    return [line.split() for line in notes.read_text().splitlines()] if notes.exists() else []


def run_quick_ones(app: App, notes: Path) -> list[float]:
    """Enqueue one quick item for each of many tenants; return how long after its enqueue each had ended, in seconds."""
    enqueued_s: dict[str, float] = {}
    for number in range(QUICK):
        at_s = time.monotonic()
        item_id = app.tenant("shop", f"quick {number}").enqueue("noted", payload(number, path=str(notes))).item_id
        enqueued_s[item_id.hex()] = at_s

    def ends() -> dict[str, float]:
        lines: Any = [line.split() for line in notes.read_text().splitlines()] if notes.exists() else []
        return {item_id: int(at_ns) / 1e9 for what, item_id, at_ns, _ in lines if what == "end"}

    eventually(lambda: len(ends()) == QUICK)
    return [at_s - enqueued_s[item_id] for item_id, at_s in ends().items()]
