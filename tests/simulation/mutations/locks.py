"""Bugs in the locks of workflows: each removes a guard of their transactions (`fairlead.zones.workflow.locks`).

The races of locks plant them (`races/test_workflow_locks`).
"""

from fairlead.workflows import step_commits
from fairlead.workflows.run_log import RunLog
from fairlead.zones.workflow import arrival, locks, participants, run_end
from tests.simulation.mutations.mutation import in_a_race

_LINE_BY_SNAPSHOT = (locks._hand_over_op, "tr.get_range(begin, end,", "tr.snapshot.get_range(begin, end,")
_NO_ENTRY_AT_HOME = (RunLog._begin, "entry = read_entry(key, stored.value)", "entry = None")
_NO_ENTRY_ELSEWHERE = (participants.begin_step_op, "return read_entry(key, entry.value)", "return None")

LOCKS_IN_RACES = (
    in_a_race(
        "a request reads the end of its line by snapshot",
        (locks.take_op, "last_rows = tr.get_range(", "last_rows = tr.snapshot.get_range("),
    ),
    in_a_race("a lock is handed over after a read by snapshot", _LINE_BY_SNAPSHOT),
    in_a_race(
        "a lock is handed over by snapshot, to whatever item",
        _LINE_BY_SNAPSHOT,
        (arrival.receiver_op, "tr.get(keys.item(item_id))", "tr.snapshot.get(keys.item(item_id))"),
    ),
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
    in_a_race(
        "the end of a run leaves its locks",
        (run_end.end_run_op, "if next(iter(requests), None) is not None:", "if False:"),
    ),
    in_a_race(
        "a cleanup leaves the locks of its run",
        (participants.clean_up_op, "if next(iter(requests), None) is not None:", "if False:"),
    ),
    in_a_race(
        "a tenant of the home's shard whose lock is taken is no participant",
        (step_commits.introduce, "if tenant == execution.held.ref.tenant or", "if True or"),
    ),
)
