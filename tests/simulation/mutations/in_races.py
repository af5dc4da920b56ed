"""Bugs in the queue that the standard campaign seldom or never finds: the races plant them."""

from fairlead.zones import transaction_runner
from tests.simulation.mutations.mutation import in_a_race

QUEUE_IN_RACES = (
    in_a_race(
        "a commit that only writes has the read version of its arrival",
        (transaction_runner._write_receipt, "if not has_read:", "if False:"),
    ),
)
