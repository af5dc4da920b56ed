"""Bugs planted in what keeps the locks of processes, one at a time: the story that is about the guard finds each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextvars import Context, ContextVar
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fairlead import App, Config, ConsumerSettings
from fairlead.workflows.lock_acquisition import LockAcquisition
from fairlead.workflows.lock_keeper import LockKeeper
from fairlead.zones.engines import Transaction
from fairlead.zones.layout import ZoneLocation
from fairlead.zones.pipelining import run_one
from fairlead.zones.queue import stored_item
from fairlead.zones.queue.lease_check import check_leases_op
from fairlead.zones.records import ItemRecord
from fairlead.zones.top_level import worker_sessions
from fairlead.zones.workflow import holds, locks
from fairlead.zones.workflow.arrival import receiver_op
from tests.fairlead import test_locks_outside as stories
from tests.workflows.application import HOME, two_shards

HOLDS = "fairlead.zones.workflow.holds"

Plant = Callable[[pytest.MonkeyPatch], None]
Story = Callable[[Path], None]


def in_memory(story: Callable[..., None], **more: Any) -> Story:
    """Tell a story on two stores in memory."""

    def tell(_: Path) -> None:
        app = two_shards()
        try:
            story(app, **more)
        finally:
            app.close()

    return tell


def of_tenant(story: Callable[..., None]) -> Story:
    """Tell a story of one tenant."""
    return in_memory(lambda app: story(app.tenant(HOME)))


def on_disk(story: Callable[..., None]) -> Story:
    """Tell a story on an embedded store, with the machine's clock."""

    def tell(directory: Path) -> None:
        settings = ConsumerSettings(workers=1, managers=1, slots=2, lease_ms=2_000, drain_ms=100)
        app = App(config=Config(shards={"main": f"embedded:{directory / 'store'}"}, consumer=settings))
        try:
            story(app)
        finally:
            app.close()

    return tell


def nothing(*args: Any, **more: Any) -> None:
    """Do nothing, as a guard that is not there."""


def operation(*args: Any, **more: Any) -> Iterator[None]:
    """Do nothing, as an operation that is not there."""
    return
    yield


def compare_no_lease(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(holds, "check_held", nothing)


def read_hold_by_snapshot(patch: pytest.MonkeyPatch) -> None:
    """Let a transaction under a lock not conflict with its loss."""

    def by_snapshot(tr: Any, *args: Any) -> Any:
        return check_leases_op(tr.snapshot, *args)

    patch.setattr(f"{HOLDS}.check_leases_op", by_snapshot)


def make_no_claim(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(worker_sessions, "add_claim", nothing)


def keep_no_run(patch: pytest.MonkeyPatch) -> None:
    """Let the end of a hold not look for its locks."""

    def insert(tr: Transaction, location: ZoneLocation, item_id: bytes, record: ItemRecord) -> None:
        record.keeps_run = False
        stored_item.insert(tr, location, item_id, record)

    patch.setattr(f"{HOLDS}.stored_item", SimpleNamespace(insert=insert, change_count=stored_item.change_count))


def give_up_no_place(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LockAcquisition, "give_up", nothing)


def ask_for_all_locks_at_once(patch: pytest.MonkeyPatch) -> None:
    """Take a place in line for each lock, though one before is not held."""

    def take_all(tr: Any, location: Any, hold: Any, wanted: Any, **more: Any) -> bytes | None:
        first = None
        for lock in wanted:
            run, asked = hold.item_id, more["now_us"]
            request = locks.LockRequest(
                "shop", "alice", "queue", run, run, locks.HOLD_KIND, more["shared"], "", asked, process=more["process"]
            )
            if not run_one(locks.take_op(tr, location, lock, request)) and first is None:
                first = lock
        return first

    patch.setattr(holds, "take_all", take_all)


def check_no_order(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("fairlead.tenant_locks._held_now", tuple)


def allow_in_bodies(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("fairlead.tenant_locks.open_body", ContextVar("no body", default=None))


def claim_not_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LockKeeper, "_claim_again", nothing)


def expedite_nobody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(holds, "expedite_op", operation)


def cut_sleeps_short(patch: pytest.MonkeyPatch) -> None:
    def expedite(tr: Any, location: Any, holder: Any, *, now_us: int) -> Any:
        receiver = yield from receiver_op(tr, location, holder.item_id)
        assert receiver is not None
        stored_item.move(tr, location, holder.item_id, receiver.record, now_us)

    patch.setattr(holds, "expedite_op", expedite)


def finish_holds_that_live(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(holds, "FINISH_AFTER_US", -(1 << 50))


def finish_no_hold(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(holds, "finish", nothing)


def start_no_call(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("fairlead.store_threads.StoreThreads.start", nothing)


def release_nothing_at_the_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("fairlead.tenant_locks._release_at_end", nothing)


MUTATIONS: list[tuple[Plant, Story]] = [
    (compare_no_lease, in_memory(stories.test_a_process_that_was_taken_for_dead_can_commit_nothing_under_its_lock)),
    (read_hold_by_snapshot, in_memory(stories.test_a_transaction_under_a_lock_conflicts_with_its_loss)),
    (make_no_claim, in_memory(stories.test_a_lock_whose_holder_is_dead_goes_to_the_next_in_line)),
    (keep_no_run, in_memory(stories.test_a_lock_whose_holder_is_dead_goes_to_the_next_in_line)),
    (give_up_no_place, in_memory(stories.test_a_lock_that_is_not_free_in_time_is_busy_and_its_place_is_given_up)),
    (ask_for_all_locks_at_once, in_memory(stories.test_locks_of_one_block_are_asked_for_one_after_the_other)),
    (check_no_order, in_memory(stories.test_locks_that_are_asked_for_out_of_order_are_refused)),
    (allow_in_bodies, in_memory(lambda app: stories.refused_in_body(app, stories.in_transact))),
    (claim_not_again, on_disk(stories.test_a_process_that_stood_still_goes_on_with_a_lock_that_nobody_has_released)),
    (
        expedite_nobody,
        in_memory(stories.test_a_workflow_that_backs_off_is_expedited_by_a_workflow_that_meets_its_lock, place=HOME),
    ),
    (cut_sleeps_short, in_memory(stories.test_a_workflow_that_sleeps_or_waits_under_a_lock_is_left_alone)),
    (finish_holds_that_live, in_memory(stories.test_a_lock_that_is_not_free_in_time_is_busy_and_its_place_is_given_up)),
    (
        finish_no_hold,
        in_memory(stories.test_a_hold_whose_claim_was_lost_is_ended_by_who_meets_its_lock_if_no_worker_takes_it),
    ),
    (start_no_call, on_disk(stories.test_a_task_that_is_cancelled_while_it_waits_gives_up_its_place)),
    (start_no_call, on_disk(stories.test_a_task_that_is_cancelled_as_it_leaves_its_block_releases_its_lock)),
    (release_nothing_at_the_end, of_tenant(stories.test_an_error_that_leaves_a_block_releases_its_locks)),
]


@pytest.mark.parametrize("plant, story", MUTATIONS, ids=[plant.__name__ for plant, _ in MUTATIONS])
def test_a_story_finds(plant: Plant, story: Story, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tests.fairlead.live_consumers.PATIENCE_S", 3.0)
    with monkeypatch.context() as patch:
        plant(patch)
        with pytest.raises((Exception, pytest.fail.Exception)):
            Context().run(story, tmp_path)


@pytest.mark.parametrize("story", [story for _, story in MUTATIONS], ids=[plant.__name__ for plant, _ in MUTATIONS])
def test_the_story_holds_without_the_bug(story: Story, tmp_path: Path) -> None:
    Context().run(story, tmp_path)
