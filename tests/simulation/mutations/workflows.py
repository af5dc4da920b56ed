"""Bugs in workflows: each removes one guard of the protocols of steps and signals (`tests/protocol_models`).

Seeds find those of `WORKFLOWS`. The guards that only a single interleaving needs are those of `IN_RACES`: the races of
workflows plant them (`races/test_workflows` says where). A signal to a run that has ended is refused without a guard of
its own: there is no record to send it to.
"""

from collections.abc import Callable
from functools import partial

from fairlead.actors.execution import deadlines
from fairlead.simulation.oracles.leases import LeasesAreRespected
from fairlead.simulation.oracles.leftovers import NothingIsLeftBehind
from fairlead.simulation.oracles.workflow_arrivals import NobodyWaitsBesideArrivals, SignalsAreTakenOnce
from fairlead.simulation.oracles.workflow_steps import CodeFits, EffectsKeepTheirKeys, StepsHappenOnce
from fairlead.simulation.run import DRAINS
from fairlead.simulation.workflow_shop import run_workflows
from fairlead.workflows import attempt, driver, effects, entering, step_commits, step_identity, undo
from fairlead.workflows.execution import Execution
from fairlead.workflows.run_log import RunLog
from fairlead.workflows.workflow_kind import WorkflowKind
from fairlead.zones.records import ItemRecord
from fairlead.zones.tenant_transaction import TenantTransaction
from fairlead.zones.workflow import arrival, cancellation, children, participants, run_end, signals, step_log
from tests.simulation.mutations.mutation import Mutation, in_a_race, mutation

ONCE = StepsHappenOnce.promise
FITS = CodeFits.promise
KEYS = EffectsKeepTheirKeys.promise
BESIDE = NobodyWaitsBesideArrivals.promise
TAKEN = SignalsAreTakenOnce.promise
LEFT = NothingIsLeftBehind.promise

_in_workflows: Callable[..., Mutation] = partial(mutation, world=run_workflows)

_RECORDED_FIRST = """            if place is None:
                place = yield Store(ask)
            found: StepEntry | None = yield Home(partial(log.record_pending, call.step, (participant, place)))
            if found is not None:
                return found
"""
_NOT_RECORDED_FIRST = """            if place is None:
                place = yield Store(ask)
            yield Home(partial(log.record_pending, call.step, None))
            log.participants[participant] = place
"""
_RECORDED_AGAIN = """            place = yield Store(ask)
            try:
                found = yield Home(partial(log.record_pending, call.step, (participant, place)))
"""
_NOT_RECORDED_AGAIN = """            log.participants[participant] = yield Store(ask)
            try:
                found = None
"""

STEPS = (
    _in_workflows(
        "a commit of a workflow at home does not compare the lease",
        (step_log.check_held_op, "check_lease(stored.value, held.lease_id)", "check_lease(stored.value, None)"),
        found_by=[ONCE, FITS, LeasesAreRespected.promise],
    ),
    _in_workflows(
        "a step at home reads its entry by snapshot",
        (RunLog._begin, "(key, tr.get(key))", "(key, tr.snapshot.get(key))"),
        (RunLog._work_then_check, "tr.add_read_conflict_key(self.home.entry_key(self.segment, step))", "pass"),
        found_by=[ONCE],
    ),
    _in_workflows(
        "a step on another shard reads its entry by snapshot",
        (participants.begin_step_op, "entry = tr.get(", "entry = tr.snapshot.get("),
        found_by=[ONCE],
    ),
    _in_workflows(
        "a cleanup leaves no tombstone",
        (
            participants.clean_up_op,
            'tr.set(keys.fence(run), END.to_bytes(FENCE_BYTES, "big"))',
            "tr.clear(keys.fence(run))",
        ),
        found_by=[ONCE],
    ),
    _in_workflows(
        "home does not record a participant before the first step there",
        (step_commits.do_at_participant, _RECORDED_FIRST, _NOT_RECORDED_FIRST),
        found_by=[ONCE, LEFT, FITS],
    ),
    _in_workflows(
        "what was read is not recorded before a step on another shard",
        (
            step_commits.do_at_participant,
            "if place is None or log.has_pending:",
            "if place is None:",
        ),
        found_by=[ONCE, FITS, TAKEN],
    ),
    _in_workflows(
        "logs are kept by the item, and not by its life",
        (ItemRecord.run_of, "return self.run or item_id", "return item_id"),
        found_by=[DRAINS, ONCE, FITS, TAKEN],
    ),
    _in_workflows(
        "undos run first to last",
        (undo.undo_all, "reverse=True", "reverse=False"),
        found_by=[ONCE],
    ),
    _in_workflows(
        "two effects of one name have one key",
        (step_identity.id_of, " + pack_int(step.occurrence)", ""),
        found_by=[KEYS],
    ),
    _in_workflows(
        "an effect that may be called once leaves no note before its call",
        (effects.effect, "                if once:\n", "                if False:\n"),
        found_by=[KEYS],
    ),
)

SIGNALS = (
    _in_workflows(
        "a suspension reads the signals by snapshot",
        (signals.first_op, "tr.get_range(", "tr.snapshot.get_range("),
        found_by=[BESIDE],
    ),
    _in_workflows(
        "a signal reads the record of its item by snapshot",
        (arrival.receiver_op, "tr.get(keys.item(item_id))", "tr.snapshot.get(keys.item(item_id))"),
        found_by=[BESIDE],
    ),
    _in_workflows(
        "a signal does not wake the item that waits for it",
        (arrival.note_arrival_op, "and record.vesting_us > wake_us", "and False"),
        found_by=[BESIDE],
    ),
    _in_workflows(
        "two signals may have one key",
        (signals.send_op, "tr.set_versionstamped_key(", "(lambda key, value: tr.set(key[:-_OFFSET_BYTES], value))("),
        found_by=[TAKEN],
    ),
    _in_workflows(
        "a signal leaves no receipt",
        (TenantTransaction.signal, "self._queue_writer(), location", "self._tr, location"),
        found_by=[TAKEN],
    ),
    _in_workflows(
        "a signal that is taken stays",
        (step_log.append, "tr.clear(key)", "pass"),
        found_by=[TAKEN],
    ),
    _in_workflows(
        "signals that nobody has taken stay when their run ends",
        (run_end.end_run_op, "(keys.signals(run), keys.child_results(run))", "(keys.child_results(run),)"),
        found_by=[LEFT],
    ),
    _in_workflows(
        "the end of a child is reported to a later life of its parent",
        (children.deliver_report_op, "receiver is None or receiver.run != parent.run", "receiver is None"),
        found_by=[LEFT],
    ),
)

WORKFLOWS = (*STEPS, *SIGNALS)

IN_RACES = (
    in_a_race(
        "a step on another shard reads its fence by snapshot",
        (
            participants.begin_step_op,
            "tr.get(fence_key)",
            "tr.snapshot.get(fence_key)",
        ),
    ),
    in_a_race(
        "a step on another shard does not compare FLOOR",
        (
            participants.begin_step_op,
            "ParticipantState(epoch_of(owner.value), floor_of(floor.value)) != foreign.place",
            "epoch_of(owner.value) != foreign.place.epoch",
        ),
    ),
    in_a_race(
        "a step on another shard does not compare the epoch of its tenant",
        (
            participants.begin_step_op,
            "ParticipantState(epoch_of(owner.value), floor_of(floor.value)) != foreign.place",
            "floor_of(floor.value) != foreign.place.floor",
        ),
    ),
    in_a_race(
        "a clock that is ahead stands in for FLOOR",
        (
            participants.ask_op,
            "return ParticipantState(epoch_of(owner.value), floor_of(floor.value))",
            "return ParticipantState(epoch_of(owner.value), floor_of(floor.value) + 2)",
        ),
        (
            participants.begin_step_op,
            "ParticipantState(epoch_of(owner.value), floor_of(floor.value)) != foreign.place",
            "epoch_of(owner.value) != foreign.place.epoch or floor_of(floor.value) > foreign.place.floor",
        ),
        (
            participants.raise_fence_op,
            "ParticipantState(epoch_of(owner.value), floor_of(floor.value)) != place",
            "(epoch_of(owner.value) != place.epoch or floor_of(floor.value) > place.floor)",
        ),
    ),
    in_a_race(
        "tombstones are cleared, and FLOOR is not raised",
        (participants.raise_floor, "tr.set(_FLOOR_KEY,", "(_FLOOR_KEY,"),
    ),
    in_a_race(
        "an executor that has asked again does not record the answer at home",
        (step_commits.do_at_participant, _RECORDED_AGAIN, _NOT_RECORDED_AGAIN),
    ),
    in_a_race(
        "the error of a step on another shard is recorded at home",
        (step_commits.record_failure, "if execution.is_home(shard):", "if True:"),
    ),
    in_a_race(
        "an effect may be the first commit of its run",
        (effects.effect, "or (execution.log.head is None and not once)", ""),
    ),
    in_a_race(
        "a step that reads nothing does not conflict on its item's record",
        (RunLog._work_then_check, "tr.add_read_conflict_key(self.home.item_key)", "pass"),
    ),
    in_a_race(
        "a new attempt does not raise the fences at participants",
        (entering._enter_once, "if not suspended:", "if False:"),
    ),
    in_a_race(
        "a step that reads nothing does not conflict on the owner of its tenant",
        (RunLog._work_then_check, "tr.add_read_conflict_key(self.home.owner_key)", "pass"),
    ),
    in_a_race(
        "the record is known at the version of a commit, not before it",
        (RunLog._commit, "_KnownVersion(version - 1,", "_KnownVersion(version,"),
    ),
    in_a_race(
        "a step that was tried before is new",
        (RunLog.do_step, "step not in self._tried", "True"),
    ),
    in_a_race(
        "the record is known while a cancellation is requested",
        (RunLog._begin, "record.cancelling or step_log", "step_log"),
    ),
    in_a_race(
        "a step at home does not look for its entry",
        (RunLog._begin, "entry = read_entry(key, stored.value)", "entry = None"),
    ),
    in_a_race(
        "a step on another shard does not look for its entry",
        (participants.begin_step_op, "return read_entry(key, entry.value)", "return None"),
    ),
    in_a_race(
        "a step on another shard writes no entry",
        (participants.end_step, "tr.set(entry_key(", "(entry_key("),
    ),
    in_a_race(
        "a step at home looks for its entry at home only",
        (RunLog._begin, "            if other is not None:\n", "            if False:\n"),
    ),
    in_a_race(
        "an executor that records a participant does not look for its step at home",
        (
            step_commits.do_at_participant,
            _RECORDED_FIRST,
            _RECORDED_FIRST.replace("if found is not None:", "if False:"),
        ),
    ),
    in_a_race(
        "a step on another shard reads its entry and its fence by snapshot",
        (participants.begin_step_op, "entry = tr.get(", "entry = tr.snapshot.get("),
        (participants.begin_step_op, "tr.get(fence_key)", "tr.snapshot.get(fence_key)"),
    ),
    in_a_race(
        "a tombstone always means a lost lease",
        (step_commits.interrupt_of, "isinstance(lost, RunEnded) and execution.log.is_held()", "False"),
    ),
    in_a_race(
        "the cleanups of all runs have one id",
        (run_end.cleanup_id, 'b"cleanup" + run', 'b"cleanup"'),
    ),
    in_a_race(
        "a fence is raised where a tombstone may have been",
        (participants.raise_fence_op, "if fence.value is None and ", "if False and "),
    ),
    in_a_race(
        "a run that is cancelled as it asks again is undone at once",
        (step_commits.do_at_participant, "execution.was_cut_off = True", "pass"),
    ),
    in_a_race(
        "a run that is cancelled between two tries of a step is undone at once",
        (Execution.try_step, "self.was_cut_off |= call.kind is StepKind.STEP", "pass"),
    ),
    in_a_race(
        "a suspension until the next try of a step does not look whether the step is done",
        (RunLog.suspend, "if not self._is_done(attempt.tr, *each)", ""),
    ),
    in_a_race(
        "a run that is cancelled as it would wait for the next try of a step is undone at once",
        (driver.suspend, "execution.was_cut_off |= any", "any"),
    ),
    in_a_race(
        "an attempt behind a suspension between two tries raises no fence",
        (entering._enter_once, " and not _has_tried(execution)", ""),
    ),
    in_a_race(
        "a fence is raised after a read by snapshot",
        (participants.raise_fence_op, "tr.get(fence_key)", "tr.snapshot.get(fence_key)"),
    ),
    in_a_race(
        "the head is written without a read",
        (step_log.append, "tr.add_read_conflict_key(held.head_key)", "pass"),
    ),
    in_a_race(
        "a cancellation that deletes reads the head by snapshot",
        (cancellation.cancel_op, "tr.get_range(", "tr.snapshot.get_range("),
        (run_end.end_run_op, "tr.get(head_key(", "tr.snapshot.get(head_key("),
    ),
    in_a_race(
        "the end of a run reads the head by snapshot",
        (run_end.end_run_op, "tr.get(head_key(", "tr.snapshot.get(head_key("),
    ),
    in_a_race(
        "entries on another shard outlast a checkpoint",
        (participants.end_step, "if foreign.segment:", "if False:"),
    ),
    in_a_race(
        "a log ends with its first page",
        (step_log._after, "if len(rows) == PAGE_ROWS", "if len(rows) < 0"),
    ),
    in_a_race(
        "older code continues a run",
        (WorkflowKind._run_logged, "if run_log.version > self.version:", "if False:"),
    ),
    in_a_race(
        "newer code may do no new step",
        (Execution.begin_replay, "may_differ=self._version > run_log.version", "may_differ=False"),
    ),
    in_a_race(
        "a last step does not see that its run has ended",
        (RunLog.finish, "return record is None or record.run_of(self.home.item_id) != self.run", "return False"),
    ),
    in_a_race(
        "a last step does not see that another run has its name",
        (RunLog.finish, "record is None or record.run_of(self.home.item_id) != self.run", "record is None"),
    ),
    in_a_race(
        "a suspension does not see that it has happened",
        (RunLog.suspend, "record is not None and record.suspended_at == self.record.lease_number", "False"),
    ),
    in_a_race(
        "a lease is extended while a step is open",
        (deadlines.due_work, "held.open_steps > 0", "False"),
    ),
    in_a_race(
        "a cancellation takes the place of the reason of an undo",
        (
            attempt._attempt,
            "elif execution.log.is_undone:",
            "elif execution.log.is_undone and not execution.held.record.cancelling:",
        ),
    ),
    in_a_race(
        "a step begins with any rest of its lease",
        (Execution.before_new, "yield from self.extend_lease()", "pass"),
    ),
    in_a_race(
        "a suspension reads the ends of children by snapshot",
        (children.child_result_op, "tr.get(", "tr.snapshot.get("),
    ),
    in_a_race(
        "a report takes the place of an earlier one",
        (children.deliver_report_op, "if present.value is not None:", "if False:"),
    ),
)
