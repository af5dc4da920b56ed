"""The bank: transactions across shards in worlds with faults. `test_seeds` draws fresh seeds, mutations plant bugs."""

from collections import Counter

from fairlead.simulation.bank.model import Funds, Transfer, Withdraw, bank_of
from fairlead.simulation.bank.world import SHARDS_MAX, SHARDS_MIN, Bank, accounts_on, run_bank
from fairlead.simulation.linearizability.history import Operation
from fairlead.simulation.linearizability.search import Verdict, is_linearizable
from fairlead.zones.placement import home

SEEDS = range(240, 300)
# The points of the protocol that some process comes to after another one has died, stood still, or got no answer.
STAGES = {
    "a prepare of unknown result is found prepared",
    "a decision of unknown result is found",
    "a transaction across shards is aborted, and begins anew",
    "an undecided transaction across shards is aborted",
    "a transaction settles another one whose lock it meets",
    "a transaction across shards is settled by another process",
    "housekeeping settles a transaction across shards that nobody has met",
}

# The points of snapshots that some process comes to while others write, move, drop or restore the tenant.
OF_SNAPSHOTS = {
    "a read at a snapshot looks through a dropped one",
    "a write looks for copies at a dropped snapshot",
    "copies of a dropped snapshot go to an older one",
    "a snapshot expires",
    "a restore takes several transactions",
    "a restore that is under way goes on",
    "a restore was ended by another process",
    "a transaction on a tenant meets its restore",
    "a tenant moves with its snapshots",
}


def test_the_same_seed_gives_the_same_history() -> None:
    assert run_bank(5).events == run_bank(5).events


def test_clerks_get_every_kind_of_answer_on_any_number_of_shards_and_come_to_every_stage() -> None:
    """A world with few events would prove little."""
    calls: Counter[str] = Counter()
    probes: Counter[str] = Counter()
    shards: Counter[int] = Counter()
    may_have_happened = 0
    for seed in SEEDS:
        bank = Bank(seed)
        report = bank.run()
        assert not report.violations, report
        history = bank.recorder.history()
        calls.update(type(operation.call).__name__ for operation in history)
        may_have_happened += sum(not operation.happened for operation in history)
        probes.update(report.probes)
        shards[bank.plan.shards] += 1
    operations = ("Transfer", "Send", "Withdraw", "Audit", "Shift", "Balances")
    assert min(calls[name] for name in operations) > len(SEEDS) // 10
    assert set(shards) == set(range(SHARDS_MIN, SHARDS_MAX + 1))
    assert not (STAGES | OF_SNAPSHOTS) - set(probes)
    assert may_have_happened > len(SEEDS) // 2


def test_each_shard_has_an_account_and_they_are_spread_evenly() -> None:
    names = ["s0", "s1", "s2"]
    homes = Counter(home(tenant, names) for tenant in accounts_on(names, 5))
    assert sorted(homes.values()) == [1, 2, 2]


def test_two_withdrawals_that_have_each_not_seen_the_other_have_no_order() -> None:
    """They are the example of write skew: each reads the balance from which the other one takes."""
    skewed = [
        Operation("left", Withdraw(0, 1, 5), (0, 0), invoked=1, responded=3),
        Operation("right", Withdraw(1, 0, 5), (0, 0), invoked=2, responded=4),
    ]
    in_order = [skewed[0], skewed[1]._replace(answer=(0, -5))]
    assert is_linearizable(skewed, bank_of(2), steps_max=100).verdict is Verdict.NOT_LINEARIZABLE
    assert is_linearizable(in_order, bank_of(2), steps_max=100).verdict is Verdict.LINEARIZABLE


def test_a_transfer_changes_no_total_in_the_model() -> None:
    answer, after = Transfer(0, 1, 7).on((Funds(3, 1), Funds()))
    assert (answer, after) == ((3, 0), (Funds(-4, 1), Funds(7)))
