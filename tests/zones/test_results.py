"""A kept result expires, is checked, and survives a restore."""

from __future__ import annotations

from fairlead.zones.keyspace import RETENTION, ROOT, pack_int, range_end
from fairlead.zones.maintenance.integrity import check_integrity
from fairlead.zones.queue import results
from fairlead.zones.queue.results import NotKept, Returned, ending
from fairlead.zones.reporting import completion_log
from fairlead.zones.reporting.completion_log import EndedItem, EndedOfZone
from tests.zones.world import SECOND, World

ITEM = b"1" * 16


def keep(world: World, value: object, kept_us: int = 60 * SECOND) -> None:
    packed = results.pack_result(value)
    world.run(
        lambda tr: results.keep_result(tr, world.zone.location, ITEM, packed, now_us=world.now_us, kept_us=kept_us)
    )


def found(world: World) -> object:
    return world.run(lambda tr: ending(tr, world.zone.location, ITEM))


def forgotten(world: World) -> int:
    return world.expire()


def test_a_result_expires(world: World) -> None:
    keep(world, [1, "two"])
    assert found(world) == Returned([1, "two"])
    world.pass_us(60 * SECOND)
    assert forgotten(world) == 0
    world.pass_us(SECOND)
    assert forgotten(world) == 1
    assert found(world) == NotKept(None)


def test_a_result_that_was_kept_again_stays_until_its_later_expiry(world: World) -> None:
    keep(world, 1)
    world.pass_us(30 * SECOND)
    keep(world, 2)
    world.pass_us(31 * SECOND)
    assert forgotten(world) == 1
    assert found(world) == Returned(2)


def test_a_result_that_cannot_be_read_is_none(world: World) -> None:
    key = world.zone.location.keys.result(ITEM)
    for rubbish in (b"", b"\0" * 8, b"\0" * 8 + b"\x01\xc1", b"\0" * 8 + b"\xff"):
        world.run(lambda tr, rubbish=rubbish: tr.set(key, rubbish))  # type: ignore[misc]
        assert found(world) == NotKept(None)


def test_an_end_reason_of_a_newer_version_is_no_result(world: World) -> None:
    newer = [EndedOfZone(*world.zone.location.tenant, world.zone.location.name, [EndedItem(ITEM, "mail", 9, 1, 5)])]
    world.run(lambda tr: completion_log.append(tr, world.layout, newer, now_us=world.now_us))
    assert found(world) == NotKept(None)


def test_a_result_without_a_retention_entry_is_found_and_repaired(world: World) -> None:
    keep(world, 1)
    assert check_integrity(world.shard).findings == []
    retention = ROOT + pack_int(RETENTION)
    world.run(lambda tr: tr.clear_range(retention, range_end(retention)))
    (finding,) = check_integrity(world.shard, repair=True).findings
    assert finding.what == "a result would never expire"
    assert check_integrity(world.shard).findings == []
