"""Every transaction that ends an item ends its run: nothing of it is left, or a cleanup item is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fairlead.zones.pipelining import run_one
from fairlead.zones.queue import dead_letter_search, dead_letters
from fairlead.zones.reporting.completion_log import EndReason
from fairlead.zones.workflow.run_end import CLEANUP_KIND
from fairlead.zones.workflow.run_records import participant_key
from fairlead.zones.workflow.step_log import HeldRun
from tests.zones.workflow.runs import begin_run, keys_of_run, move_to_dead_letters, send_signal, the_dead_letter
from tests.zones.world import BOB, World


def complete(world: World, held: HeldRun) -> None:
    world.run(lambda tr: world.zone.complete(tr, held.item_id, now_us=world.now_us, lease_id=held.lease_id))


def cancel(world: World, held: HeldRun) -> None:
    world.run(lambda tr: world.zone.complete(tr, held.item_id, now_us=world.now_us))


def drop(world: World, held: HeldRun) -> None:
    holding, reason = [(held.item_id, held.lease_id)], EndReason.DROPPED
    world.run(lambda tr: run_one(world.zone.complete_op(tr, holding, now_us=world.now_us, ended=[], end_reason=reason)))


def discard(world: World, held: HeldRun) -> None:
    move_to_dead_letters(world, held.item_id)
    found = the_dead_letter(world, held.item_id)
    world.run(lambda tr: dead_letters.discard(tr, held.location, held.item_id, found, now_us=world.now_us))


def discard_in_bulk(world: World, held: HeldRun) -> None:
    move_to_dead_letters(world, held.item_id)

    def body(tr: Any) -> None:
        listed = list(dead_letters.listing(tr, world.layout, items_max=10))
        dead_letter_search.discard_all(tr, world.layout, listed, now_us=world.now_us)

    world.run(body)


WAYS_TO_END = [complete, cancel, drop, discard, discard_in_bulk]
End = Callable[[World, HeldRun], None]


@pytest.mark.parametrize("end", WAYS_TO_END)
def test_an_end_leaves_nothing_of_a_run_that_acted_at_home(world: World, end: End) -> None:
    held = begin_run(world, world.enqueue())
    send_signal(world, held.item_id, "approved")
    end(world, held)
    assert keys_of_run(world, held.run) == []
    assert world.count() == {}


@pytest.mark.parametrize("end", WAYS_TO_END)
def test_an_end_of_a_run_with_participants_leaves_their_names_to_a_cleanup_item(world: World, end: End) -> None:
    held = begin_run(world, world.enqueue(), participates=True)
    send_signal(world, held.item_id, "approved")
    end(world, held)
    assert keys_of_run(world, held.run) == [participant_key(held.location.keys.tenant, held.run, BOB)]
    assert world.count() == {CLEANUP_KIND: 1}


@pytest.mark.parametrize("end", WAYS_TO_END)
def test_the_participants_of_a_run_whose_head_is_lost_are_cleaned_up_all_the_same(world: World, end: End) -> None:
    """Before, their names were cleared, and what they keep stayed for good."""
    held = begin_run(world, world.enqueue(), participates=True)
    world.clear(held.head_key)
    end(world, held)
    assert keys_of_run(world, held.run) == [participant_key(held.location.keys.tenant, held.run, BOB)]
    assert world.count() == {CLEANUP_KIND: 1}


@pytest.mark.parametrize("end", WAYS_TO_END)
def test_signals_to_an_item_that_never_ran_go_with_it(world: World, end: End) -> None:
    item_id = world.enqueue()
    send_signal(world, item_id, "approved")
    end(world, HeldRun(world.zone.location, item_id, world.lease(item_id), item_id))
    assert keys_of_run(world, item_id) == []


def test_a_dead_letter_keeps_its_run(world: World) -> None:
    held = begin_run(world, world.enqueue(), participates=True)
    stored = keys_of_run(world, held.run)
    move_to_dead_letters(world, held.item_id)
    assert keys_of_run(world, held.run) == stored
    assert world.count() == {}


def test_the_log_of_a_named_item_ends_with_its_run_and_not_with_the_next_of_that_name(world: World) -> None:
    first = begin_run(world, world.enqueue(item_id="checkout-7", run=b"1" * 16))
    complete(world, first)
    second = begin_run(world, world.enqueue(item_id="checkout-7", run=b"2" * 16))
    assert keys_of_run(world, first.run) == []
    assert len(keys_of_run(world, second.run)) == 2


def test_several_runs_with_participants_end_in_one_transaction(world: World) -> None:
    held = [begin_run(world, world.enqueue(), participates=True) for _ in range(3)]
    holding = [(each.item_id, each.lease_id) for each in held]
    world.run(lambda tr: run_one(world.zone.complete_op(tr, holding, now_us=world.now_us, ended=[])))
    assert world.count() == {CLEANUP_KIND: 3}
    assert len(world.vested_ids()) == 3
