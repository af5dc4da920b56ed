"""Dead letters are found by what they are and why they failed, and many are retried or discarded at once."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.zones.queue import dead_letter_search
from fairlead.zones.queue.dead_letter_search import DeadLetterFilter, DeadLetterPage
from fairlead.zones.queue.queue_zone import QueueZone
from fairlead.zones.records import OwnerRecord, encode
from tests.zones.colliding import collides
from tests.zones.test_dead_letters import dead_letter_item
from tests.zones.world import ALICE, BOB, SECOND, World


def dead_letter(
    world: World, kind: str = "mail", error: str = "ValueError: no", *, zone: QueueZone | None = None
) -> bytes:
    item_id = world.enqueue(kind, zone=zone)
    dead_letter_item(world, item_id, zone=zone, error=error)
    world.pass_us(SECOND)
    return item_id


def search(world: World, criteria: DeadLetterFilter, *, items_max: int = 100, **how: Any) -> DeadLetterPage:
    return world.run(lambda tr: dead_letter_search.search(tr, world.layout, criteria, items_max=items_max, **how))


def found(world: World, criteria: DeadLetterFilter) -> list[bytes]:
    return [item.id for item in search(world, criteria).items]


def test_dead_letters_are_found_by_kind_tenant_zone_error_and_time(world: World) -> None:
    mail = dead_letter(world)
    index = dead_letter(world, "index", "TimeoutError: after 30 s")
    bobs = dead_letter(world, zone=world.zone_of(BOB))
    other = dead_letter(world, zone=world.zone_of(ALICE, "other"))
    assert found(world, DeadLetterFilter()) == [mail, index, bobs, other]
    assert found(world, DeadLetterFilter(kind="index")) == [index]
    assert found(world, DeadLetterFilter(tenant=BOB)) == [bobs]
    assert found(world, DeadLetterFilter(app=BOB.app)) == [mail, index, bobs, other]
    assert found(world, DeadLetterFilter(app="none")) == []
    assert found(world, DeadLetterFilter(tenant=ALICE, zone="queue")) == [mail, index]
    assert found(world, DeadLetterFilter(error="after 30")) == [index]
    assert found(world, DeadLetterFilter(before_us=world.now_us - 2 * SECOND)) == [mail, index]
    assert found(world, DeadLetterFilter(kind="index", error="no")) == []


@pytest.mark.parametrize("latest_first", [False, True])
def test_a_search_goes_on_where_it_stopped_whichever_bound_stopped_it(world: World, latest_first: bool) -> None:
    dead_lettered_ids = [dead_letter(world, "mail" if number % 3 else "index") for number in range(9)]
    wanted = [each for number, each in enumerate(dead_lettered_ids) if number % 3]
    met: list[bytes] = []
    looked = 0
    next_key: bytes | None = None
    while True:
        unearthed = search(
            world,
            DeadLetterFilter(kind="mail"),
            items_max=2,
            scanned_max=4,
            next_key=next_key,
            latest_first=latest_first,
        )
        met += [item.id for item in unearthed.items]
        looked += unearthed.scanned
        next_key = unearthed.next_key
        if next_key is None:
            break
    assert met == (wanted[::-1] if latest_first else wanted)
    assert looked == 9


def test_many_are_retried_at_once_and_run(world: World) -> None:
    ids = {dead_letter(world), dead_letter(world), dead_letter(world, zone=world.zone_of(BOB))}
    items = search(world, DeadLetterFilter()).items
    retried = world.run(lambda tr: dead_letter_search.retry_dead_letters(tr, world.layout, items, now_us=world.now_us))
    assert {item.id for item in retried} == ids
    assert {item.id for visit in world.process() for item in visit.items} == ids
    assert found(world, DeadLetterFilter()) == []


def test_many_are_discarded_at_once(world: World) -> None:
    dead_letter(world)
    kept = dead_letter(world, "index")
    items = search(world, DeadLetterFilter(kind="mail")).items
    world.run(lambda tr: dead_letter_search.discard_all(tr, world.layout, items, now_us=world.now_us))
    assert found(world, DeadLetterFilter()) == [kept]
    assert world.count() == {}


def test_items_that_are_no_longer_dead_letters_or_failed_anew_are_left_out(world: World) -> None:
    _, anew, there = dead_letter(world), dead_letter(world), dead_letter(world)
    items = search(world, DeadLetterFilter()).items
    world.run(lambda tr: dead_letter_search.retry_dead_letters(tr, world.layout, items[:2], now_us=world.now_us))
    dead_letter_item(world, anew)
    done = world.run(lambda tr: dead_letter_search.discard_all(tr, world.layout, items, now_us=world.now_us))
    assert [item.id for item in done] == [there]


def test_items_of_a_tenant_that_has_moved_are_left_out_and_block_no_other(world: World) -> None:
    dead_letter(world)
    bobs = dead_letter(world, zone=world.zone_of(BOB))
    items = search(world, DeadLetterFilter()).items
    world.set(world.zone.location.keys.tenant.owner, encode(OwnerRecord(1, b"another shard...")))
    done = world.run(lambda tr: dead_letter_search.retry_dead_letters(tr, world.layout, items, now_us=world.now_us))
    assert [item.id for item in done] == [bobs]


def test_of_two_that_retry_one_dead_letter_one_finds_none(world: World) -> None:
    dead_letter(world)
    items = search(world, DeadLetterFilter()).items
    assert collides(
        world.db,
        lambda tr: dead_letter_search.discard_all(tr, world.layout, items, now_us=world.now_us),
        lambda tr: dead_letter_search.retry_dead_letters(tr, world.layout, items, now_us=world.now_us),
    )
