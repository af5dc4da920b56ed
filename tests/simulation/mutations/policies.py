"""Bugs in policies: paused items run, or are never resumed; more items run than a limit allows."""

from fairlead.actors.dispatch.concurrency_limiter import ConcurrencyLimiter
from fairlead.actors.housekeeping.housekeeping import Housekeeping
from fairlead.simulation.oracles.leftovers import NothingIsLeftBehind
from fairlead.simulation.oracles.limits import KindsKeepToFleetLimits, TenantsKeepToTheirLimits
from fairlead.simulation.oracles.pauses import WhatIsPausedStays
from fairlead.simulation.oracles.pointers import PointersLeadToWork
from fairlead.simulation.run import DRAINS, RECOVERS
from fairlead.zones.policy import limits, policies, tenant_limits
from fairlead.zones.queue import dequeue
from fairlead.zones.top_level import process_pointers
from tests.simulation.mutations.mutation import mutation

POLICIES = (
    mutation(
        "a pointer of a paused tenant is processed like any other",
        (dequeue._items_max, "if quantum.policy.paused:", "if False:"),
        found_by=[WhatIsPausedStays.promise],
    ),
    mutation(
        "a manager reads the policies once",
        (
            policies.read_policies_op,
            'if int.from_bytes(found, "little") <= int.from_bytes(known.version, "little"):',
            "if known.version:",
        ),
        found_by=[WhatIsPausedStays.promise, DRAINS, RECOVERS],
    ),
    mutation(
        "items of a paused shard are leased",
        (process_pointers.process_pointers, "if in_force.shard_paused:", "if False:"),
        found_by=[WhatIsPausedStays.promise],
    ),
    mutation(
        "the pointers of a resumed tenant are not woken",
        (policies.set_tenant_policy, "if before.paused and not policy.paused:", "if False:"),
        found_by=[DRAINS, PointersLeadToWork.promise],
    ),
    mutation(
        "consumers do not wake paused pointers when a pause has ended",
        (Housekeeping._run_chores, "wake_paused_pointers(attempt.tr, shard.layout, now_us=checked_us) > 0", "False"),
        found_by=[RECOVERS, DRAINS, NothingIsLeftBehind.promise],
    ),
    mutation(
        "a pointer sleeps because of a pause, and is not in the index of paused pointers",
        (
            process_pointers.requeue_pointer_op,
            "policies.index_paused_pointer(tr, location, plan.skipped_kinds & capacity.paused)",
            "pass",
        ),
        found_by=[DRAINS, PointersLeadToWork.promise],
    ),
    mutation(
        "an item of a tenant with a limit gets no in-flight marker",
        (tenant_limits.charge_limits, 'tr.set(location.keys.tenant.in_flight(location.name, item_id), b"")', "pass"),
        found_by=[TenantsKeepToTheirLimits.promise],
    ),
    mutation(
        "an in-flight marker is cleared while its item runs",
        (tenant_limits._is_leased, "record.vesting_us > now_us", "record.vesting_us < now_us"),
        found_by=[TenantsKeepToTheirLimits.promise],
    ),
    mutation(
        "slots are granted as if no other manager had any",
        (limits.take_slots, "others += grant.slots", "pass"),
        found_by=[KindsKeepToFleetLimits.promise],
    ),
    mutation(
        "a manager takes its slots again for items that run already",
        (ConcurrencyLimiter.available, "else slots - usage.held", "else slots"),
        found_by=[KindsKeepToFleetLimits.promise],
    ),
    mutation(
        "a shard propagates a policy of a kind although it has a later one",
        (policies.propagate_kind_policy, "if found.updated_us > policy.updated_us:", "if False:"),
        found_by=[RECOVERS, KindsKeepToFleetLimits.promise],
    ),
)
