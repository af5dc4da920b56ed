"""Bugs in the queue that the standard campaign seldom or never finds: the races plant them."""

from fairlead.actors.dispatch.concurrency_limiter import _Quota
from fairlead.zones import transaction_runner
from tests.simulation.mutations.mutation import in_a_race

QUEUE_IN_RACES = (
    in_a_race(
        "a commit that only writes has the read version of its arrival",
        (transaction_runner._write_receipt, "if not has_read:", "if False:"),
    ),
    in_a_race(
        "a manager keeps slots from before a limit was lifted and set anew",
        (_Quota.apply_policies, "self.slots = self.tokens = 0", "pass"),
    ),
    in_a_race(
        "a manager forgets a grant as it learns of its policy",
        (_Quota.apply_policies, "if policy.updated_us > self.policy.updated_us:", "if True:"),
    ),
)
