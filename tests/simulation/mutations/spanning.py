"""Bugs in transactions across shards: each removes a guard of `tests/protocol_models/spanning.py`, or one beside them.

`GUARDS` has the bug of each guard of the model. Stories plant them (`tests/zones/spanning/test_guards.py`), races
(`tests/simulation/races/test_spanning.py`), and the search through all orders (`tests/zones/spanning/orders`).
"""

from fairlead.simulation.bank.world import SERIALIZABLE, SETTLED, run_bank
from fairlead.simulation.oracles.bank import MoneyStays, StatementsComeOnce
from fairlead.simulation.oracles.spanning import DecisionsAreFinal, LocksHaveTransactions
from fairlead.zones import ownership
from fairlead.zones.spanning import coordinator, decision, leftovers, participant, recovery, tenant_view
from fairlead.zones.spanning.coordinator import SpanningTransaction
from tests.protocol_models.spanning import Guard
from tests.simulation.mutations.mutation import Mutation, in_a_race, mutation

_TORN = (SERIALIZABLE, MoneyStays.promise)
_AT_ALL = (*_TORN, DecisionsAreFinal.promise, LocksHaveTransactions.promise, StatementsComeOnce.promise, SETTLED)

_NOT_VALIDATED = mutation(
    "a prepare does not validate what was read on its shard",
    (
        SpanningTransaction._prepare,
        "db, transaction = branch.shard.db, self._transaction",
        "db, transaction = branch.shard.db, self._transaction; branch.tr = db.create_transaction()",
    ),
    found_by=_TORN,
    world=run_bank,
)
_NO_SHARED_LOCK = mutation(
    "a prepare does not lock a tenant that was only read",
    (
        participant.prepare,
        "keys = {tenant:",
        "tenants = {tenant: exclusive for tenant, exclusive in tenants.items() if exclusive}\n    keys = {tenant:",
    ),
    found_by=_TORN,
    world=run_bank,
)
_DECIDES_BLINDLY = mutation(
    "a coordinator decides without reading that there is no decision",
    (decision.decide, "if tr.get(key).present():", "if False:"),
    found_by=(*_TORN, DecisionsAreFinal.promise),
    world=run_bank,
)
_HOME_IS_LATE = mutation(
    "a coordinator takes the home's read version after it has prepared",
    (
        SpanningTransaction._decide,
        "carry_out(home.tr,",
        "home.tr = home.shard.db.create_transaction(); carry_out(home.tr,",
    ),
    found_by=(DecisionsAreFinal.promise,),
    world=run_bank,
)
_INFERS_THE_ABORT = mutation(
    "who finds no decision infers the abort, and does not write it",
    (
        recovery.outcome,
        "if found is not None or not may_abort:",
        "if found is None and may_abort:\n        return False\n    if found is not None or not may_abort:",
    ),
    found_by=_TORN,
    world=run_bank,
)
_PASSES_LOCKS = mutation(
    "a plain transaction passes the lock of a transaction across shards",
    (ownership.check_owner, "for lock in owner.locks:", "for lock in ():"),
    found_by=_AT_ALL,
    world=run_bank,
)
_FORGETS_WHAT_IS_PREPARED = in_a_race(
    "a commit is forgotten before it is carried out everywhere",
    (leftovers.Leftovers._is_carried_out, "for shard_id in shard_ids:", "for shard_id in ():"),
)
_FORGETS_AT_ONCE = mutation(
    "a commit is forgotten before its coordinator knows its result",
    (leftovers.Leftovers.forget_old, "now_us - decision.DECISION_LIFE_US", "now_us"),
    found_by=(DecisionsAreFinal.promise,),
    world=run_bank,
)
_READS_NOT_VALIDATED = mutation(
    "a transaction without writes validates nothing",
    (SpanningTransaction._validate, "for branch in self._read[:-1]:", "for branch in ():"),
    found_by=_TORN,
    world=run_bank,
)

GUARDS: dict[Guard, Mutation] = {
    Guard.READS_VALIDATED: _NOT_VALIDATED,
    Guard.SHARED_LOCK: _NO_SHARED_LOCK,
    Guard.DECISION_READ: _DECIDES_BLINDLY,
    Guard.HOME_FIRST: _HOME_IS_LATE,
    Guard.ABORT_WRITTEN: _INFERS_THE_ABORT,
    Guard.LOCK_SEEN: _PASSES_LOCKS,
    Guard.CARRIED_OUT: _FORGETS_WHAT_IS_PREPARED,
    Guard.RECEIPT: _FORGETS_AT_ONCE,
    Guard.ALL_VALIDATED: _READS_NOT_VALIDATED,
}

SPANNING = (
    *(bug for bug in GUARDS.values() if bug.promises),
    mutation(
        "the body of a transaction across shards does not see what it has written",
        (tenant_view.Branch.__init__, "BufferedTransaction(self.tr, self.buffer)", "self.tr"),
        found_by=_AT_ALL,
        world=run_bank,
    ),
    mutation(
        "two processes apply a transaction across shards at once",
        (participant._take, "value = tr.get(key).value", "value = tr.snapshot.get(key).value"),
        (participant._take, "(each, tr.get(each.owner))", "(each, tr.snapshot.get(each.owner))"),
        (participant.apply, "tr.get(piece_key(", "tr.snapshot.get(piece_key("),
        found_by=_TORN,
        world=run_bank,
    ),
    mutation(
        "a prepare of unknown result counts as done",
        (SpanningTransaction._prepare, "if not transact(db,", "if False and not transact(db,"),
        found_by=_TORN,
        world=run_bank,
    ),
    mutation(
        "a decision of unknown result counts as an abort",
        (SpanningTransaction._decide, "if not self._is_committed(home, shard_ids):", "if True:"),
        found_by=_TORN,
        world=run_bank,
    ),
    mutation(
        "an error of a body counts, whatever it has read",
        (SpanningTransaction.run, "self._check_refusal()\n            self._validate()", "self._check_refusal()"),
        found_by=_TORN,
        world=run_bank,
    ),
    mutation(
        "a transaction across shards commits after a lock has refused its body",
        (SpanningTransaction._check_refusal, "if self._refusal is not None:", "if False:"),
        found_by=_TORN,
        world=run_bank,
    ),
    mutation(
        "an attempt that failed leaves what it has prepared, and nobody settles it",
        (coordinator.SpanningTransaction.give_up, "for branch in self._prepared:", "for branch in ():"),
        (leftovers.Leftovers.settle_old, ">= SEEN_US", ">= 1 << 60"),
        found_by=(SETTLED,),
        world=run_bank,
    ),
)
SPANNING_IN_RACES = tuple(bug for bug in GUARDS.values() if not bug.promises)
