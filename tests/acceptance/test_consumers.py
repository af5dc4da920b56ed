"""Several consumers on the same shards, and several shards under one consumer."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fairlead.zones.layout import named_tenant
from fairlead.zones.placement import home
from tests.acceptance.fleets import SHOP, config, consumer, eventually, machine, opened, written
from tests.acceptance.loads import TENANTS, Load, assert_all_done, assert_nothing_left, depth, runs_of
from tests.acceptance.shop import payload


def overlapping(runs: dict[str, list[tuple[int, int]]]) -> list[str]:
    """Return the items that ran twice at the same time."""
    return [
        item
        for item, spans in runs.items()
        if any(later[0] < earlier[1] for earlier, later in zip(sorted(spans), sorted(spans)[1:], strict=False))
    ]


def test_no_item_runs_twice_while_its_lease_is_live(tmp_path: Path) -> None:
    """Two consumers in processes of their own; handlers that take up to three leases, so that extending matters."""
    chosen = config(tmp_path, lease_ms=500, slots=16)
    written(chosen, tmp_path)
    notes = tmp_path / "notes"
    with opened(chosen) as app, machine(tmp_path) as on:
        for number in range(600):
            takes_ms = 1_500 if number % 20 == 0 else 20
            tenant = app.tenant("shop", f"user {number % 30}")
            tenant.enqueue("noted", payload(number, path=str(notes), takes_ms=takes_ms))
        with (tmp_path / "log").open("w") as log:
            for _ in range(2):
                on.run("run", SHOP, "--config", "fairlead.toml", "--runtime", "threads", log=log)
        eventually(lambda: depth(app) == 0, otherwise=(tmp_path / "log").read_text)
        runs = runs_of(notes)
        assert len(runs) == 600
        assert overlapping(runs) == []
        assert sum(len(spans) for spans in runs.values()) == 600, "no lease expired, so nothing ran a second time"
        pids = {line.split()[3] for line in notes.read_text().splitlines()}
        assert len(pids) == 2, "both consumers worked"


@pytest.mark.usefixtures("cluster")
def test_actors_have_the_same_right_to_the_processor_as_the_process_that_started_them(tmp_path: Path) -> None:
    """Ray makes its workers as nice as 15 unless told otherwise; beside a busy neighbour they then stand still."""
    with consumer(config(tmp_path)) as running:
        pids = running.pids()
        niceness = [os.getpriority(os.PRIO_PROCESS, pid) for some in pids.values() for pid in some]
        assert niceness == len(niceness) * [os.getpriority(os.PRIO_PROCESS, 0)]


@pytest.mark.usefixtures("cluster")
def test_two_consumers_on_one_cluster_share_the_work(tmp_path: Path) -> None:
    chosen = config(tmp_path, workers=1)
    with opened(chosen) as app, consumer(chosen) as one, consumer(chosen) as other:
        with Load(app, per_s=500) as load:
            eventually(lambda: min(each.counts().get("completed", 0) for each in (one, other)) > 100)
        assert_all_done(app, load.enqueued)
        assert_nothing_left(app)


@pytest.mark.usefixtures("cluster")
def test_one_consumer_serves_many_shards_and_tenants_live_where_they_belong(tmp_path: Path) -> None:
    names = ("north", "south", "west")
    chosen = config(tmp_path, shards=names)
    with opened(chosen) as app, consumer(chosen):
        with Load(app, per_s=500) as load:
            eventually(lambda: len(load.enqueued) >= 1_000)
        assert_all_done(app, load.enqueued)
        homes = {f"user {number}": app.tenant("shop", f"user {number}").shard.name for number in range(TENANTS)}
        assert homes == {user: home(named_tenant("shop", user), list(names)) for user in homes}
        assert set(homes.values()) == set(names), "every shard had something to do"
        assert_nothing_left(app)
