"""Bugs in the queue that the standard campaign seldom or never finds: the races plant them."""

from fairlead.actors.dispatch.concurrency_limiter import ConcurrencyLimiter, _Quota
from fairlead.actors.execution import acknowledgement
from fairlead.zones import transaction_runner
from fairlead.zones.tenant_transaction import TenantTransaction
from fairlead.zones.top_level import process_pointers
from fairlead.zones.top_level.clock_check import ShardClock
from tests.simulation.mutations.mutation import in_a_race

QUEUE_IN_RACES = (
    in_a_race(
        "a commit that only writes has the read version of its arrival",
        (transaction_runner._write_receipt, "if not has_read:", "if False:"),
    ),
    in_a_race(
        "a user's write does not read the owner of its tenant",
        (TenantTransaction._careful_writer, "if not self._owner_is_checked:", "if False:"),
    ),
    in_a_race(
        "a user's transaction does not read the owner of its tenant with conflict",
        (TenantTransaction.get, "owner, read = self._tr.get(", "owner, read = self._tr.snapshot.get("),
    ),
    in_a_race(
        "a manager keeps slots from before a limit was lifted and set anew",
        (_Quota.apply_policies, "self.slots = self.tokens = 0", "pass"),
    ),
    in_a_race(
        "a manager forgets a grant as it learns of its policy",
        (_Quota.apply_policies, "if policy.updated_us > self.policy.updated_us:", "if True:"),
    ),
    in_a_race(
        "a manager does not count what a call under way may have taken",
        (ConcurrencyLimiter._renewal_of, "held += min(usage.reserved, max(0, quota.granted - held))", "pass"),
    ),
    in_a_race(
        "an item that is returned vests at the time of the clock that returns it",
        (acknowledgement.return_items, "min(0, ref.vested_us - now_us) if ref.vested_us else 0", "0"),
    ),
    in_a_race(
        "of the items that wait for long only the first is looked at for a lease of a clock ahead",
        (process_pointers._revoke_op, "limit = max(1, FAR_ENTRIES_MAX // len(first))", "limit = 1"),
    ),
    in_a_race(
        "a queue that is put to sleep for long is searched for leases of a clock ahead only from its first item on",
        (process_pointers._revoke_op, "outlasts or entry.vesting_us > latest_us", "entry.vesting_us > latest_us"),
    ),
    in_a_race(
        "a clock that steps while its consumer watches goes on with the watch",
        (ShardClock.assess, "self._watched_us is None or has_stepped", "self._watched_us is None"),
    ),
)
