"""What an operator pauses starts no more from that commit on, and goes on once it is resumed."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.zones.errors import PolicyUnreadable, TenantMoved
from fairlead.zones.keyspace import POLICY, ROOT, pack_int, pack_text
from fairlead.zones.layout import Tenant
from fairlead.zones.pipelining import run_one
from fairlead.zones.policy import policies
from fairlead.zones.policy.policies import NO_POLICIES, WAKE_MAX
from fairlead.zones.queue.dequeue_plan import Capacity
from fairlead.zones.records import FORMAT, KindPolicy, OwnerRecord, TenantPolicy, encode
from fairlead.zones.top_level.pointers import PointerRef
from fairlead.zones.top_level.process_pointers import PointerOutcome, PointerResult, drop_moved, process_pointers
from tests.zones.colliding import collides
from tests.zones.world import ALICE, ANY, BOB, PAUSE_US, SECOND, World

MAX_SLEEP_US = 300 * SECOND


def pause_kind(world: World, kind: str) -> None:
    world.run(lambda tr: policies.change_kind_policy(tr, kind, now_us=world.now_us, paused=True))


def resume_kind(world: World, kind: str) -> None:
    world.run(lambda tr: policies.change_kind_policy(tr, kind, now_us=world.now_us, paused=False))


def wake_paused_pointers(world: World) -> int:
    return world.run(lambda tr: policies.wake_paused_pointers(tr, world.layout, now_us=world.now_us))


def wake_tenant(world: World, after: str) -> str | None:
    return world.run(lambda tr: policies.wake_tenant(tr, world.layout, ALICE, after=after, now_us=world.now_us))


def set_policy(world: World, policy: TenantPolicy, tenant: Tenant = ALICE) -> None:
    world.run(lambda tr: policies.set_tenant_policy(tr, world.layout, tenant, policy, now_us=world.now_us))


def pause(world: World, tenant: Tenant = ALICE) -> None:
    set_policy(world, TenantPolicy(paused=True), tenant)


def resume(world: World, tenant: Tenant = ALICE) -> None:
    set_policy(world, TenantPolicy(), tenant)


def taken(results: list[PointerResult]) -> list[bytes]:
    return [item.id for result in results for item in result.items]


# --- Kinds ---


def test_a_paused_kind_is_not_taken_and_others_are(world: World) -> None:
    world.enqueue("mail")
    index = world.enqueue("index")
    pause_kind(world, "mail")
    assert taken(world.process()) == [index]


def test_a_pointer_with_nothing_but_paused_work_sleeps_as_long_as_a_pointer_may(world: World) -> None:
    """Polling 100,000 paused tenants every few seconds would cost as much as their work."""
    world.enqueue("mail")
    pause_kind(world, "mail")
    world.process()
    assert world.pointer_delay_us() == MAX_SLEEP_US


def test_it_wakes_in_time_for_a_delayed_item_of_another_kind(world: World) -> None:
    world.enqueue("mail")
    world.enqueue("index", delay=9)
    pause_kind(world, "mail")
    world.process()
    assert world.pointer_delay_us() == 9 * SECOND


def test_paused_items_are_taken_once_their_kind_is_resumed(world: World) -> None:
    item_id = world.enqueue("mail")
    pause_kind(world, "mail")
    world.process()
    resume_kind(world, "mail")
    assert wake_paused_pointers(world) == 1
    assert taken(world.process()) == [item_id]
    assert wake_paused_pointers(world) == 0


def test_only_pointers_that_sleep_because_of_the_resumed_kind_are_woken(world: World) -> None:
    world.enqueue("mail")
    world.enqueue("index", zone=world.zone_of(BOB))
    pause_kind(world, "mail")
    pause_kind(world, "index")
    world.process()
    resume_kind(world, "index")
    assert wake_paused_pointers(world) == 1
    assert world.pointer_delay_us() == MAX_SLEEP_US
    assert world.pointer_delay_us(world.zone_of(BOB)) == 0


def test_a_zone_of_two_paused_kinds_is_woken_by_either(world: World) -> None:
    world.enqueue("mail")
    index = world.enqueue("index")
    pause_kind(world, "mail")
    pause_kind(world, "index")
    world.process()
    resume_kind(world, "index")
    wake_paused_pointers(world)
    assert taken(world.process()) == [index]
    resume_kind(world, "mail")
    wake_paused_pointers(world)
    assert len(taken(world.process())) == 1


def test_paused_work_beside_work_of_an_unknown_kind_is_woken_too(world: World) -> None:
    world.enqueue("mail")
    world.enqueue("fax")
    pause_kind(world, "mail")
    world.process()
    assert world.pointer_delay_us() == PAUSE_US
    resume_kind(world, "mail")
    assert wake_paused_pointers(world) == 1
    assert len(taken(world.process())) == 1


def test_a_pointer_that_is_gone_by_then_is_not_made_again(world: World) -> None:
    """Its tenant may have moved away since, and its pointer with it."""
    location = world.layout.location(ALICE, "queue")
    pause_kind(world, "mail")
    world.run(lambda tr: policies.index_paused_pointer(tr, location, ["mail"]))
    resume_kind(world, "mail")
    assert wake_paused_pointers(world) == 1
    assert world.scan() == []
    assert wake_paused_pointers(world) == 0


def test_the_pointer_of_a_tenant_that_has_moved_is_forgotten_by_the_paused_kind(world: World) -> None:
    world.enqueue("mail")
    pause_kind(world, "mail")
    (result,) = world.process()
    world.set(world.zone.location.keys.tenant.owner, encode(OwnerRecord(3, b"elsewhere".ljust(16))))
    assert world.run(lambda tr: drop_moved(tr, world.layout, result.ref))
    resume_kind(world, "mail")
    assert wake_paused_pointers(world) == 0


def test_a_paused_kind_is_not_deferred_to_another_consumer(world: World) -> None:
    world.present("one", "mail")
    world.present("other", "mail")
    world.enqueue("mail")
    pause_kind(world, "mail")
    (result,) = world.process()
    assert result.deferred is None
    assert world.scan() == []


def test_many_indexed_pointers_are_woken_in_several_transactions(world: World) -> None:
    for number in range(WAKE_MAX + 5):
        world.enqueue("mail", zone=world.zone_of(Tenant("shop", f"user-{number}")))
    pause_kind(world, "mail")
    world.process()
    assert world.scan() == []
    resume_kind(world, "mail")
    assert [wake_paused_pointers(world), wake_paused_pointers(world), wake_paused_pointers(world)] == [WAKE_MAX, 5, 0]
    assert len(world.scan()) == WAKE_MAX + 5


def test_a_pointer_that_falls_asleep_conflicts_with_a_concurrent_resume(world: World) -> None:
    world.enqueue("mail")
    pause_kind(world, "mail")
    ref = world.ref()

    def dequeue(tr: Any) -> None:
        process_pointers(tr, world.layout, [ref], Capacity(10, ANY), world.terms())

    assert collides(
        world.db, lambda tr: policies.change_kind_policy(tr, "mail", now_us=world.now_us, paused=False), dequeue
    )


def test_a_dequeue_without_paused_items_does_not_conflict_with_new_policies(world: World) -> None:
    world.enqueue("mail")
    ref = world.ref()

    def dequeue(tr: Any) -> None:
        process_pointers(tr, world.layout, [ref], Capacity(10, ANY), world.terms())

    assert not collides(
        world.db, lambda tr: policies.change_kind_policy(tr, "fax", now_us=world.now_us, paused=True), dequeue
    )


def test_a_policy_is_propagated_to_a_shard_unless_its_copy_is_newer(world: World) -> None:
    def repeat(updated_us: int) -> int:
        policy = KindPolicy(max_running=updated_us, updated_us=updated_us)
        return world.run(lambda tr: policies.propagate_kind_policy(tr, "mail", policy)).updated_us

    assert [repeat(5), repeat(3), repeat(7)] == [5, 5, 7]
    assert world.run(policies.read_policies).kinds["mail"] == KindPolicy(max_running=7, updated_us=7)


def test_a_new_policy_of_a_kind_is_later_than_the_former_one_at_any_clock(world: World) -> None:
    pause_kind(world, "mail")
    before_us = world.run(policies.read_policies).kinds["mail"].updated_us
    world.pass_us(-SECOND)
    resume_kind(world, "mail")
    assert world.run(policies.read_policies).kinds["mail"].updated_us > before_us


def test_a_limit_that_an_older_version_wrote_without_a_time_is_observed(world: World) -> None:
    world.run(lambda tr: policies.propagate_kind_policy(tr, "mail", KindPolicy(max_running=3)))
    found = world.run(policies.read_policies)
    assert (list(found.later_than({})), found.limited_later_than({})) == (["mail"], ["mail"])


# --- How a policy comes into force ---


def test_policies_are_read_again_only_when_they_have_changed(world: World) -> None:
    pause_kind(world, "mail")
    known = world.run(policies.read_policies)
    assert known.paused_kinds == {"mail"}

    def again(tr: Any) -> policies.Policies:
        refs: list[PointerRef] = []
        return process_pointers(tr, world.layout, refs, Capacity(10, ANY), world.terms(), known)[1]

    assert world.run(again) is known
    pause_kind(world, "index")
    assert world.run(again).paused_kinds == {"mail", "index"}


def test_a_policy_of_a_newer_version_is_skipped(world: World) -> None:
    pause_kind(world, "index")
    world.set(ROOT + pack_int(POLICY) + pack_int(2) + pack_text("mail"), bytes([FORMAT + 1]))
    assert world.run(policies.read_policies).paused_kinds == {"index"}


def test_policies_older_than_the_known_ones_are_ignored(world: World) -> None:
    """A transaction at a relaxed read version may find them; a manager would forget a pause for a moment."""
    pause_kind(world, "mail")
    older = world.run(policies.read_policies)
    pause_kind(world, "index")
    known = world.run(policies.read_policies)
    resume_kind(world, "mail")
    assert world.run(policies.read_policies).version > known.version > older.version
    newest = world.run(policies.read_policies)
    assert world.run(lambda tr: run_one(policies.read_policies_op(tr, newest))) is newest
    later = newest._replace(version=(int.from_bytes(newest.version, "little") + 1).to_bytes(8, "little"))
    assert world.run(lambda tr: run_one(policies.read_policies_op(tr, later))) is later


def test_a_shard_without_policies_has_none(world: World) -> None:
    assert world.run(policies.read_policies) == NO_POLICIES


# --- Shards ---


def test_no_pointer_is_processed_or_changed_while_the_shard_is_paused(world: World) -> None:
    item_id = world.enqueue()
    world.run(policies.pause_shard)
    assert world.process() == []
    assert len(world.scan()) == 1
    world.run(policies.resume_shard)
    assert taken(world.process()) == [item_id]


def test_a_pause_that_is_applied_late_does_not_undo_its_own_end(world: World) -> None:
    """A commit of unknown result was repeated, and the pause ended, before the first one came to the store."""
    assert collides(world.db, policies.resume_shard, policies.pause_shard)
    assert collides(world.db, policies.pause_shard, policies.resume_shard)
    for first, second in ((True, False), (False, True)):
        assert collides(
            world.db,
            lambda tr: policies.change_kind_policy(tr, "mail", now_us=world.now_us, paused=first),  # noqa: B023
            lambda tr: policies.change_kind_policy(tr, "mail", now_us=world.now_us, paused=second),  # noqa: B023
        )


# --- Tenants ---


def test_a_paused_tenant_starts_nothing_in_any_of_its_zones_and_others_do(world: World) -> None:
    world.enqueue()
    world.enqueue(zone=world.zone_of(ALICE, "mails"))
    bobs = world.enqueue(zone=world.zone_of(BOB))
    pause(world)
    assert taken(world.process()) == [bobs]
    assert world.pointer_delay_us() == MAX_SLEEP_US


def test_all_zones_of_a_resumed_tenant_are_woken(world: World) -> None:
    item_ids = {world.enqueue(), world.enqueue(zone=world.zone_of(ALICE, "mails"))}
    pause(world)
    world.process()
    resume(world)
    assert set(taken(world.process())) == item_ids


def test_a_tenant_with_very_many_zones_is_woken_in_several_transactions(world: World) -> None:
    """In one transaction, to wake all of them passed five seconds on a cluster: the tenant stayed paused."""
    for number in range(2 * WAKE_MAX + 5):
        world.enqueue(zone=world.zone_of(ALICE, f"{number:04}"))
    pause(world)
    for _ in range(3):
        world.process()
    assert world.scan(ids_max=2_000) == []
    resume(world)
    assert len(world.scan(ids_max=2_000)) == WAKE_MAX
    last = wake_tenant(world, "")
    assert last == f"{WAKE_MAX - 1:04}"
    last = wake_tenant(world, last)
    assert len(world.scan(ids_max=2_000)) == 2 * WAKE_MAX
    assert last is not None
    assert wake_tenant(world, last) is None
    assert len(world.scan(ids_max=2_000)) == 2 * WAKE_MAX + 5


def test_an_enqueue_does_not_wake_a_paused_tenant_and_its_item_runs_with_the_others(world: World) -> None:
    world.enqueue()
    pause(world)
    world.process()
    world.enqueue(priority=0)
    assert world.scan() == []
    resume(world)
    assert len(taken(world.process())) == 2


def test_the_first_item_of_a_paused_tenant_waits_too(world: World) -> None:
    pause(world)
    item_id = world.enqueue()
    (result,) = world.process()
    assert (result.outcome, list(result.items)) == (PointerOutcome.SERVED, [])
    resume(world)
    assert taken(world.process()) == [item_id]


def test_an_item_of_a_paused_tenant_that_runs_can_be_completed(world: World) -> None:
    world.enqueue()
    (item,) = world.dequeue()
    pause(world)
    world.run(lambda tr: world.zone.complete(tr, item.id, now_us=world.now_us, lease_id=item.record.lease_id))
    assert world.count() == {}


def test_a_pause_conflicts_with_a_concurrent_dequeue(world: World) -> None:
    world.enqueue()
    ref = world.ref()

    def dequeue(tr: Any) -> None:
        process_pointers(tr, world.layout, [ref], Capacity(10, ANY), world.terms())

    def pause(tr: Any) -> None:
        policies.set_tenant_policy(tr, world.layout, ALICE, TenantPolicy(paused=True), now_us=world.now_us)

    assert collides(world.db, pause, dequeue)


def test_tenants_with_policies_are_listed_and_leave_nothing_behind_when_the_policy_is_cleared(world: World) -> None:
    before = world.everything()
    pause(world)
    pause(world, BOB)
    listed = world.run(lambda tr: policies.tenants_with_policies(tr, tenants_max=10))
    assert listed == [(ALICE, TenantPolicy(paused=True)), (BOB, TenantPolicy(paused=True))]
    resume(world)
    resume(world, BOB)
    assert world.run(lambda tr: policies.tenants_with_policies(tr, tenants_max=10)) == []
    assert world.everything() == before


def test_the_policy_of_a_tenant_that_has_moved_cannot_be_changed(world: World) -> None:
    world.set(world.zone.location.keys.tenant.owner, encode(OwnerRecord(3, b"elsewhere".ljust(16))))
    with pytest.raises(TenantMoved):
        pause(world)


def test_a_tenant_that_has_come_back_keeps_its_epoch(world: World) -> None:
    owner = world.zone.location.keys.tenant.owner
    world.set(owner, encode(OwnerRecord(3, world.layout.shard_id)))
    pause(world)
    resume(world)
    assert world.run(lambda tr: tr.get(owner).value) == encode(OwnerRecord(3, world.layout.shard_id))


# --- Rules that cannot be read ---


def test_a_policy_of_a_newer_version_is_not_overwritten(world: World) -> None:
    key = ROOT + pack_int(POLICY) + pack_int(2) + pack_text("mail")
    newer = bytes([FORMAT + 1]) + b"what it says"
    world.set(key, newer)
    with pytest.raises(PolicyUnreadable):
        pause_kind(world, "mail")
    assert world.run(lambda tr: tr.get(key).value) == newer


def test_a_damaged_policy_is_replaced_by_the_next_change(world: World) -> None:
    world.set(ROOT + pack_int(POLICY) + pack_int(2) + pack_text("mail"), b"\x63")
    pause_kind(world, "mail")
    assert world.run(policies.read_policies).paused_kinds == {"mail"}
