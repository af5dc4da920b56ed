"""The promises of workflows about their calls: those of a sequential execution, each once and in order.

The code of the simulated workflows writes a key for each step that it does, see `fairlead.simulation.workflow_code`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fairlead.simulation.oracles.oracle import Oracle
from fairlead.simulation.oracles.zone_operations import EXPIRED
from fairlead.simulation.replica import ParsedCommit, RunKey, ShardReplica, unpack_key
from fairlead.simulation.workflow_ledger import EffectCall, RunStep, WorkflowLedger, label_of
from fairlead.simulation.workflow_shapes import Failing
from fairlead.simulation.world import World
from fairlead.zones import keyspace
from fairlead.zones.queue.items import unpack_payload
from fairlead.zones.workflow.run_records import RunHead, decode_head

_HEAD = 1  # The number of a head's key below its step log.
_EXPECTED = ("PermanentError", "StepFailed", "EffectUnknown", "CallTimeout", "ItemFailed")


@dataclass(slots=True)
class _Run:
    """What has happened of a run. `did`: the token of each step, and whether it has an undo."""

    did: dict[int, tuple[str, bool]] = field(default_factory=dict)
    undone: dict[int, str] = field(default_factory=dict)
    trace: dict[int, Any] | None = None
    head: RunHead | None = None
    has_ended: bool = False

    @property
    def is_undone(self) -> bool:
        """Whether it is being undone, or has been."""
        return self.head is not None and self.head.undo_reason is not None

    @property
    def first_label(self) -> int:
        """The first call after the last checkpoint."""
        if self.head is None or not self.head.checkpoint:
            return 0
        return label_of(unpack_payload(self.head.checkpoint)["next"])


class StepsHappenOnce(Oracle):
    """Each step of a run is committed once, in the order of its calls, and the trace has its answer.

    Of a run that is undone, each step with an undo is undone once, last first, and no step is done any more. After the
    end of a run nothing is done.
    """

    promise = "each step of a workflow happens exactly once, and in order"

    def __init__(self, world: World, ledger: WorkflowLedger) -> None:
        super().__init__(world)
        self._ledger = ledger
        self._runs: dict[str, _Run] = {}

    def on_commit(self, parsed: ParsedCommit) -> None:
        """See `Oracle`."""
        for key, value in parsed.data.items():
            path = unpack_key(key)[4:]
            if path[0] == "did":
                self._do(parsed.by, path[1], path[2], value, has_undo=bool(path[3]))
            elif path[0] == "undone":
                self._undo(parsed.by, path[1], path[2], value)
            elif path[0] == "trace" and value is not None:
                self._run(path[1]).trace = dict(json.loads(value))
        for changed in parsed.run_keys:
            if changed.path[0] == keyspace.STEP_LOG and changed.path[2:] == [_HEAD]:
                self._note_head(changed)

    def at_end(self, shards: Sequence[ShardReplica]) -> None:
        """See `Oracle`."""
        kept = {
            dead_letter.item.run_of(item_id).hex()
            for shard in shards
            for zone in shard.zones.values()
            for item_id, dead_letter in zone.dead_lettered.items()
        }
        for name, run in self._runs.items():
            if name in kept:
                continue
            if run.is_undone:
                self._check_undone(name, run)
            elif run.trace is not None:
                self._check_done(name, run, run.trace)
            elif run.did:
                self.report_violation(f"run {name} has ended after {sorted(run.did)}, neither done nor undone")

    def _run(self, name: str) -> _Run:
        return self._runs.setdefault(name, _Run())

    def _note_head(self, changed: RunKey) -> None:
        run = self._run(changed.path[1].hex())
        if changed.after is None:
            run.has_ended = True
        else:
            run.head = decode_head(changed.after)

    def _do(self, by: str, name: str, label: int, value: bytes | None, *, has_undo: bool) -> None:
        run = self._run(name)
        what = f"{by} does step {label} of run {name}"
        if label in run.did or value is None:
            self.report_violation(f"{what} again")
        elif run.has_ended:
            self.report_violation(f"{what}, which has ended")
        elif run.is_undone:
            self.report_violation(f"{what}, which is undone")
        elif run.did and label < max(run.did):
            self.report_violation(f"{what} after step {max(run.did)}")
        run.did[label] = ((value or b"").decode(), has_undo)

    def _undo(self, by: str, name: str, label: int, value: bytes | None) -> None:
        run = self._run(name)
        what = f"{by} undoes step {label} of run {name}"
        token, has_undo = run.did.get(label, ("", False))
        if label in run.undone or value is None:
            self.report_violation(f"{what} again")
        elif run.has_ended or not run.is_undone:
            self.report_violation(f"{what}, which {'has ended' if run.has_ended else 'goes forward'}")
        elif not has_undo or token != value.decode():
            self.report_violation(f"{what} with {value.decode()}; it was done with {token or 'nothing'}")
        elif run.undone and label > min(run.undone):
            self.report_violation(f"{what} after step {min(run.undone)}")
        run.undone[label] = (value or b"").decode()

    def _check_undone(self, name: str, run: _Run) -> None:
        expected = {label for label, (_, has_undo) in run.did.items() if has_undo and label >= run.first_label}
        if expected != set(run.undone):
            wrong = sorted(expected ^ set(run.undone))
            self.report_violation(f"run {name} is undone, but for {wrong}; from {run.first_label} on it did {run.did}")
        for step, calls in self._ledger.effects.items():
            planned = self._ledger.planned_effects[step]
            if step.run != name or not planned.has_undo or step.label < run.first_label:
                continue
            may_fail = planned.failing not in (Failing.NEVER, Failing.BEFORE_RETRY)
            if not may_fail and _answers(calls) and not self._ledger.undone_effects.get(step):
                self.report_violation(f"run {name} is undone, but for effect {step.label}")

    def _check_done(self, name: str, run: _Run, trace: dict[int, Any]) -> None:
        if run.undone:
            self.report_violation(f"run {name} is done, and undid {sorted(run.undone)}")
        for label, (token, _) in run.did.items():
            if trace.get(label) != token:
                self.report_violation(f"run {name} did step {label} with {token}, and got {trace.get(label)}")
        tokens = {token for token, _ in run.did.values()}
        for label, answer in trace.items():
            calls = self._ledger.effects.get(RunStep(name, label), [])
            if isinstance(answer, str) and len(answer) == TOKEN_CHARS and answer not in {*tokens, *_answers(calls)}:
                self.report_violation(f"run {name} got {answer} for call {label}, which answered {calls}")
            if isinstance(answer, str) and len(answer) == RUN_CHARS and self._run(answer).trace is None:
                self.report_violation(f"run {name} got the result of child {answer}, which is not done")


TOKEN_CHARS, RUN_CHARS = 16, 32  # Of a step's or an effect's answer, and of a child's.


class EffectsKeepTheirKeys(Oracle):
    """An effect is called with one key, which no other effect has; one that may be called once is called once."""

    promise = "an effect is called with one key, and perhaps once"

    def __init__(self, world: World, ledger: WorkflowLedger) -> None:
        super().__init__(world)
        self._ledger = ledger

    def at_end(self, shards: Sequence[ShardReplica]) -> None:
        """See `Oracle`."""
        owners: dict[str, tuple[str, RunStep]] = {}
        for sort, all_calls in (("effect", self._ledger.effects), ("undo", self._ledger.undone_effects)):
            for step, calls in all_calls.items():
                for call in calls:
                    if owners.setdefault(call.key, (sort, step)) != (sort, step):
                        self.report_violation(f"{sort} of {step} has the key of {owners[call.key]}")
                keys = {call.key for call in calls}
                if len(keys) > 1:
                    self.report_violation(f"{sort} of {step} is called with {keys}")
        for step, calls in self._ledger.effects.items():
            begun = sum(call.answer is None for call in calls)
            if self._ledger.planned_effects[step].once and begun > 1:
                self.report_violation(f"effect {step} is called {begun} times, and may be called once")


class CodeFits(Oracle):
    """A workflow fails for good by errors that its code raises only: its replays do not differ."""

    promise = "a replay of the same code does the same"

    def on_commit(self, parsed: ParsedCommit) -> None:
        """See `Oracle`."""
        for change in parsed.items:
            dead_letter = change.dead_lettered
            if dead_letter is None or dead_letter.reason == EXPIRED or dead_letter.error.startswith(_EXPECTED):
                continue
            self.report_violation(f"{change.item} becomes a dead letter: {dead_letter.error[:1_000]}")


def _answers(calls: Sequence[EffectCall]) -> set[str]:
    return {call.answer for call in calls if call.answer is not None}
