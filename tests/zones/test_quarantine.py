"""Quarantine: damaged records are set aside unchanged, on demand, and the rest of the store is whole."""

from __future__ import annotations

from random import Random

import pytest

from fairlead.zones.errors import OwnerUnreadable
from fairlead.zones.keyspace import ROOT
from fairlead.zones.maintenance import quarantine
from fairlead.zones.maintenance.integrity import check_integrity, dead_letters, items, records
from fairlead.zones.maintenance.quarantine import SetAside, listing
from fairlead.zones.policy.policies import set_tenant_policy
from fairlead.zones.queue.dead_letters import move_to_dead_letters
from fairlead.zones.queue.items import EnqueueStatus
from fairlead.zones.records import FORMAT, TenantPolicy
from tests.zones.corrupting import CAROL, damaged_world, left, populate
from tests.zones.world import ALICE, World

DAMAGED = bytes([FORMAT]) + b"\xc1"
NEWER = bytes([FORMAT + 1]) + b"what it means only they know"


def set_aside(world: World) -> list[SetAside]:
    return world.run(lambda tr: listing(tr, pairs_max=99))


def test_a_damaged_item_is_set_aside_as_it_is_and_its_entry_and_counts_go_with_it(world: World) -> None:
    damaged, whole = world.enqueue("mail"), world.enqueue("mail")
    key = world.zone.location.keys.item(damaged)
    world.set(key, DAMAGED)
    assert not check_integrity(world.shard, repair=True).healthy, "a repair loses no item, not even a damaged one"
    report = check_integrity(world.shard, quarantine=True)
    assert report.healthy
    assert (report.findings[0].what, report.findings[0].set_aside) == (items.DAMAGED_ITEM, True)
    assert [(pair.why, pair.key, pair.value) for pair in set_aside(world)] == [(items.DAMAGED_ITEM, key, DAMAGED)]
    assert check_integrity(world.shard).findings == []
    assert (world.count(), world.vested_ids()) == ({"mail": 1}, [whole])


def test_a_name_whose_item_was_set_aside_can_be_given_again(world: World) -> None:
    damaged = world.enqueue("mail", item_id="order-7")
    world.set(world.zone.location.keys.item(damaged), DAMAGED)
    assert world.try_enqueue("mail", item_id="order-7").status is EnqueueStatus.PRESENT
    check_integrity(world.shard, quarantine=True)
    assert world.try_enqueue("mail", item_id="order-7").status is EnqueueStatus.ENQUEUED


def test_an_item_with_an_incomplete_payload_is_set_aside_with_all_pieces(world: World) -> None:
    item_id = world.enqueue("mail", bytes(200_000))
    world.clear(world.zone.location.keys.piece(item_id, 1))
    assert check_integrity(world.shard, quarantine=True).healthy
    assert len(set_aside(world)) == 3, "its record, and two of three pieces"
    assert world.of_items() == []


def test_an_item_that_failed_is_set_aside_with_its_traceback(world: World) -> None:
    item_id = world.enqueue()
    lease_id = world.lease(item_id)
    world.run(lambda tr: world.zone.requeue(tr, item_id, lease_id, delay_us=0, now_us=world.now_us, error_count=1,
                                            error="ValueError: no", traceback="line 3, in send"))  # fmt: skip
    world.set(world.zone.location.keys.item(item_id), DAMAGED)
    assert check_integrity(world.shard, quarantine=True).healthy
    assert len(set_aside(world)) == 2, "its record and its traceback"
    assert world.of_items() == []


def test_a_damaged_dead_letter_leaves_the_list_of_dead_letters(world: World) -> None:
    item_id = world.enqueue()
    record = world.record(item_id)
    assert record is not None
    world.run(
        lambda tr: move_to_dead_letters(
            tr, world.zone.location, item_id, record, reason="error", error="", traceback="", now_us=world.now_us
        )
    )
    world.set(world.zone.location.keys.dead_letter(item_id), DAMAGED)
    report = check_integrity(world.shard, quarantine=True)
    assert report.healthy
    assert [finding.what for finding in report.findings] == [
        dead_letters.DAMAGED_DEAD_LETTER,
        dead_letters.DANGLING_DEAD_LETTER_ENTRY,
    ]


def test_a_tenant_whose_ownership_cannot_be_read_is_refused_until_it_is_set_aside(world: World) -> None:
    policy = TenantPolicy(paused=True)
    world.run(lambda tr: set_tenant_policy(tr, world.layout, ALICE, policy, now_us=world.now_us))
    world.set(world.zone.location.keys.tenant.owner, DAMAGED)
    with pytest.raises(OwnerUnreadable):
        world.enqueue()
    assert check_integrity(world.shard, quarantine=True).findings[0].what == records.DAMAGED_RECORD
    world.enqueue()
    assert len(world.process()[0].items) == 1, "its policy is gone with it"


def test_what_a_newer_version_wrote_is_not_damaged_and_stays(world: World) -> None:
    populate(world)
    location = world.zone_of(CAROL).location
    newer = [location.keys.item(world.enqueue(zone=world.zone_of(CAROL))), location.keys.dead_letter(bytes(16))]
    for key in newer:
        world.set(key, NEWER)
    check_integrity(world.shard, quarantine=True)
    assert set_aside(world) == []
    assert [dict(world.stored(key, key + b"\0")) for key in newer] == [{key: NEWER} for key in newer]


def test_an_impossible_key_is_set_aside_and_a_key_of_a_later_version_is_not(
    world: World,
) -> None:
    prefix = world.zone.location.keys.prefix
    damaged = [prefix + b"\x15\x01\x01short\x00", prefix[:-3], ROOT + b"\x02no number\x00"]
    of_tenant = world.zone.location.keys.tenant.zones[:-1] + b"\x77"
    later = [prefix + b"\x15\x77\x01id\x00", ROOT + b"\x15\x77", of_tenant]
    for key in damaged + later:
        world.set(key, b"something")
    report = check_integrity(world.shard, quarantine=True)
    assert report.unknown == len(later)
    assert sorted(pair.key for pair in set_aside(world)) == sorted(damaged)
    for key in later:
        assert world.stored(key, key + b"\0") == [(key, b"something")]


def test_a_pair_that_was_set_aside_is_kept_until_it_is_discarded(world: World) -> None:
    for _ in range(3):
        world.set(world.zone.location.keys.item(world.enqueue()), DAMAGED)
    check_integrity(world.shard, quarantine=True)
    world.pass_us(10**12)
    check_integrity(world.shard, quarantine=True)
    first, *rest = set_aside(world)
    assert len(rest) == 2
    assert world.run(lambda tr: quarantine.throw_away(tr, first.id)) == 1
    assert world.run(lambda tr: quarantine.throw_away(tr, first.id)) == 0
    assert set_aside(world) == rest


def test_a_record_that_is_damaged_twice_is_set_aside_twice(world: World) -> None:
    item_id = world.enqueue(item_id="order-7")
    for _ in range(2):
        world.set(world.zone.location.keys.item(item_id), DAMAGED)
        check_integrity(world.shard, quarantine=True)
        world.pass_us(1)
        world.enqueue(item_id="order-7")
    assert [pair.key for pair in set_aside(world)] == [world.zone.location.keys.item(item_id)] * 2


@pytest.mark.parametrize("seed", range(100))
def test_whatever_was_damaged_a_store_is_whole_once_that_is_set_aside(seed: int) -> None:
    """Every sort of record and key, its bits turned over, cut off, or replaced by garbage."""
    world, damages = damaged_world(Random(seed))
    check_integrity(world.shard, quarantine=True)
    report = check_integrity(world.shard)
    assert left(report) == [], damages
    assert report.newer or not report.unverified, damages
