"""Bugs in locks, of workflows and of other processes: each removes a guard of their transactions.

The races of locks plant those of workflows (`races/test_workflow_locks`), and seeds of the worlds with workflows find
most. `tests/fairlead/test_locks_outside_mutations.py` plants those of other processes, and some that no world finds.
"""

from collections.abc import Callable
from functools import partial

from fairlead.simulation.oracles.leases import LeasesAreRespected
from fairlead.simulation.oracles.leftovers import NothingIsLeftBehind
from fairlead.simulation.oracles.process_locks import HoldersGoOn, NobodyComesBetween
from fairlead.simulation.oracles.workflow_locks import LocksExclude, StepsAreDoneUnderTheirLocks
from fairlead.simulation.run import DRAINS
from fairlead.simulation.workflow_shop import run_workflows
from fairlead.workflows import step_commits
from fairlead.workflows.run_log import RunLog
from fairlead.zones.workflow import arrival, holds, locks, participants, run_end
from tests.simulation.mutations.mutation import Mutation, in_a_race, mutation

_LINE_BY_SNAPSHOT = (locks._hand_over_op, "tr.get_range(begin, end,", "tr.snapshot.get_range(begin, end,")
_NO_ENTRY_AT_HOME = (RunLog._begin, "entry = read_entry(key, stored.value)", "entry = None")
_NO_ENTRY_ELSEWHERE = (participants.begin_step_op, "return read_entry(key, entry.value)", "return None")

_in_worlds: Callable[..., Mutation] = partial(
    mutation,
    found_by=(LocksExclude.promise, StepsAreDoneUnderTheirLocks.promise, DRAINS, NothingIsLeftBehind.promise),
    world=run_workflows,
)

LOCKS = (
    _in_worlds(
        "a request reads the end of its line by snapshot",
        (locks.take_op, "last_rows = tr.get_range(", "last_rows = tr.snapshot.get_range("),
    ),
    _in_worlds("a lock is handed over after a read by snapshot", _LINE_BY_SNAPSHOT),
    _in_worlds(
        "a lock is handed over by snapshot, to whatever item",
        _LINE_BY_SNAPSHOT,
        (arrival.receiver_op, "tr.get(keys.item(item_id))", "tr.snapshot.get(keys.item(item_id))"),
    ),
    _in_worlds(
        "the end of a run leaves its locks",
        (run_end.end_run_op, "if next(iter(requests), None) is not None:", "if False:"),
    ),
    _in_worlds(
        "a cleanup leaves the locks of its run",
        (participants.clean_up_op, "if next(iter(requests), None) is not None:", "if False:"),
    ),
    _in_worlds(
        "a tenant of the home's shard whose lock is taken is no participant",
        (step_commits.introduce, "if tenant == execution.held.ref.tenant or", "if True or"),
    ),
)
_outside: Callable[..., Mutation] = partial(
    mutation,
    found_by=(
        NobodyComesBetween.promise,
        HoldersGoOn.promise,
        LocksExclude.promise,
        LeasesAreRespected.promise,
        DRAINS,
        NothingIsLeftBehind.promise,
    ),
    world=run_workflows,
)
LOCKS_OUTSIDE = (
    _outside(
        "a transaction under a lock does not compare the lease of its hold",
        (holds.check_held, "if run_one(find_op(tr, location, hold)) is None:", "if False:"),
    ),
    _outside(
        "a transaction under a lock reads its hold by snapshot",
        (holds.find_op, "check_leases_op(tr, location,", "check_leases_op(tr.snapshot, location,"),
    ),
    _outside(
        "a hold is no claim of its process's session",
        (
            holds.begin_op,
            "worker_sessions.add_claim(tr, location, hold.item_id, record, session_id=session_id)",
            "pass",
        ),
    ),
    _outside(
        "the end of a hold does not look for its locks",
        (holds.begin_op, "record.keeps_run = True", "pass"),
    ),
    _outside(
        "the hold of a process that lives is ended by who meets its lock",
        (holds.finish, "if from_us > now_us:", "if False:"),
    ),
)
LOCKS_IN_RACES = (
    in_a_race(
        "a request looks neither for its entry nor for itself",
        (locks.take_op, "if number.value is not None:", "if False:"),
        _NO_ENTRY_AT_HOME,
        _NO_ENTRY_ELSEWHERE,
    ),
    in_a_race(
        "a release looks neither for its entry nor for its own request",
        (locks.release_op, "if number.value is not None:", "if True:"),
        (locks.release_op, "lock, run, number.value,", "lock, run, number.value or (1).to_bytes(8, 'big'),"),
        _NO_ENTRY_AT_HOME,
        _NO_ENTRY_ELSEWHERE,
    ),
    in_a_race(
        "a step on another shard looks neither at its fence nor for its entry",
        (
            participants.begin_step_op,
            "_check_fence(read_fence(fence_key, fence.value), foreign.lease_number, foreign.run)",
            "pass",
        ),
        _NO_ENTRY_ELSEWHERE,
    ),
)
