"""Workers report their running items as long as they live."""

from __future__ import annotations

from functools import partial
from typing import Any

from fairlead.zones.keyspace import ROOT, WORKER_STATUS, pack_bytes, pack_int
from fairlead.zones.records import Progress
from fairlead.zones.reporting import worker_status
from fairlead.zones.reporting.worker_status import LIVE_US, RETENTION_US, RunningItem, WorkerStatus, longest_running
from tests.zones.world import ALICE, World

WORKER, OTHER = b"one\x00", b"two"


def running(number: int, *, since_us: int, progress: Progress | None = None) -> RunningItem:
    return RunningItem(*ALICE, "queue", bytes([number]) * 16, "mail", 1, since_us, since_us + 10, progress)


def write(world: World, incarnation: bytes, *items: RunningItem) -> None:
    status = WorkerStatus(b"consumer", "host", 7, 16, len(items), world.now_us, list(items))
    world.run(lambda tr: worker_status.write(tr, incarnation, status))


def read(world: World) -> list[WorkerStatus]:
    return world.run(lambda tr: worker_status.read(tr, now_us=world.now_us))


def test_a_status_shows_the_running_items_and_their_progress(world: World) -> None:
    item = running(1, since_us=5, progress=Progress(3, 10, "resizing", 6))
    write(world, WORKER, item)
    (status,) = read(world)
    assert (status.host, status.pid, status.slots, status.busy, status.running) == ("host", 7, 16, 1, [item])
    assert item.tenant == ALICE


def test_of_all_workers_the_items_that_have_run_longest_come_first(world: World) -> None:
    write(world, WORKER, running(1, since_us=5), running(2, since_us=9))
    write(world, OTHER, running(3, since_us=7))
    found = longest_running(read(world), items_max=2)
    assert [each.item.since_us for each in found] == [5, 7]


def test_items_of_a_dead_worker_are_not_listed(world: World) -> None:
    write(world, WORKER, running(1, since_us=5))
    write(world, OTHER)
    world.pass_us(LIVE_US + 1)
    assert [status.running for status in read(world)] == [[]], "one that does nothing need not write"


def test_old_statuses_are_cleared(world: World) -> None:
    write(world, WORKER, running(1, since_us=5))
    world.pass_us(RETENTION_US + 1)
    write(world, OTHER)
    world.run(lambda tr: worker_status.clear_old(tr, now_us=world.now_us, keys_max=10))
    world.pass_us(-RETENTION_US)
    assert len(read(world)) == 1


def test_an_unreadable_status_is_skipped(world: World) -> None:
    key = ROOT + pack_int(WORKER_STATUS) + pack_bytes(WORKER)

    def write_raw(tr: Any, value: bytes) -> None:
        tr.set(key, value)

    for rubbish in (b"", b"\xff", b"\x01\xc1"):
        world.run(partial(write_raw, value=rubbish))
        assert read(world) == []
    world.run(lambda tr: worker_status.clear_old(tr, now_us=world.now_us, keys_max=10))
