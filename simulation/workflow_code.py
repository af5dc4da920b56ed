"""The code of the simulated workflows: carries out a shape, and notes each answer in the trace of its run.

Each step writes a token into the tenant's keys, and returns the token:

    ("did", run, label)      a step; 1 as the last element: it has an undo
    ("under", run, label)    the locks under which a step is done, if there are any
    ("undone", run, label)   the undo of a step
    ("trace", run)           all answers of a run, written in its last transaction

So the oracles see, commit by commit, what has happened and in which order, and at the end whether the answers that the
workflow got are those of the steps that happened.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from fairlead.actors.execution.retry import Retry
from fairlead.actors.handlers import PermanentError
from fairlead.simulation.host import SimulatedHost
from fairlead.simulation.workflow_ledger import EffectCall, RunStep, WorkflowLedger, WorkflowWait, label_of
from fairlead.simulation.workflow_shapes import Failing, PlannedCall, Shape, What, Where
from fairlead.simulation.workflow_tenants import Neighbours
from fairlead.workflows.child_jobs import UNFINISHED
from fairlead.workflows.context import WorkflowContext, child
from fairlead.workflows.errors import CallTimeout, EffectUnknown
from fairlead.workflows.recorded_errors import StepFailed
from fairlead.zones.errors import ItemFailed, ItemGone
from fairlead.zones.layout import Tenant
from fairlead.zones.tenant_transaction import TenantTransaction

KIND, CHORE = "checkout", "chore"
FAILED, UNKNOWN, LATE, GONE, OPEN, NOTHING = "failed", "unknown", "late", "gone", "open", ""

_ANSWERS: dict[type[Exception], str] = {EffectUnknown: UNKNOWN, CallTimeout: LATE, ItemGone: GONE}

Trace = list[list[Any]]  # of label and answer
HeldLock = list[Any]  # the names of its tenant, and the elements of its key
LOCK_NAME = "lock"
OwnRetries = {
    Failing.OWN_RETRY: Retry(attempts=3, backoff=0.02),
    Failing.LONG_RETRY: Retry(attempts=3, backoff=5.5, backoff_max=6),
}


class WorkflowCode:
    """The code of one process.

    Args:
      version: of the code.
      shape_of: returns the shape of an order.
      neighbours_of: returns the tenants on which the workflows of a tenant act.
      receiver_of: returns the name of an item to signal, and its tenant, for a number.
      overtake: may let another executor overtake this one, at an item.
      answer: may send a signal to an item that is about to wait for it.
    """

    def __init__(
        self,
        host: SimulatedHost,
        ledger: WorkflowLedger,
        *,
        version: int,
        shape_of: Callable[[str], Shape],
        neighbours_of: Callable[[Tenant], Neighbours],
        receiver_of: Callable[[int], tuple[str, Tenant]],
        overtake: Callable[[SimulatedHost, Tenant, bytes], None],
        answer: Callable[[Tenant, bytes, str], None],
    ) -> None:
        self.version = version
        self._host = host
        self._ledger = ledger
        self._shape_of = shape_of
        self._neighbours_of = neighbours_of
        self._receiver_of = receiver_of
        self._overtake = overtake
        self._answer = answer
        self._items: dict[str, tuple[Tenant, bytes]] = {}  # By run.

    def checkout(self, wf: WorkflowContext, order: str) -> str:
        """The workflow of an order."""
        self._items[wf.run.hex()] = wf.tenant, wf.item_id
        return _Run(self, wf, order).run()

    # --- The bodies of steps, and effects ---

    def do(
        self, tr: TenantTransaction, run: str, label: int, has_undo: bool, failing: str, under: Sequence[HeldLock]
    ) -> str:
        """Do a step."""
        self._ponder(run)
        token = self._token()
        if under:
            tr.set(("under", run, label), json.dumps(under).encode())
        tr.set(("did", run, label, int(has_undo)), token.encode())
        self._fail(Failing[failing])
        return token

    def undo(
        self,
        tr: TenantTransaction,
        run: str,
        label: int,
        has_undo: bool,
        failing: str,
        under: Sequence[HeldLock],
        result: str,
    ) -> None:
        """Undo a step."""
        self._ponder(run)
        tr.set(("undone", run, label), result.encode())
        self._fail(Failing.BEFORE_RETRY)

    def pay(self, key: str, run: str, label: int, failing: str) -> str:
        """An effect."""
        token = self._token()
        calls = self._ledger.effects[RunStep(run, label)]
        calls.append(EffectCall(key, None))
        self._ponder(run)
        self._fail(Failing[failing])
        calls.append(EffectCall(key, token))
        return token

    def pay_back(self, key: str, run: str, label: int, failing: str) -> None:
        """The undo of an effect."""
        self._ledger.undone_effects[RunStep(run, label)].append(EffectCall(key, None))
        self._ponder(run)

    def look(self, tr: TenantTransaction) -> int:
        """Read how often a tenant was changed, a number that others raise all the time."""
        return int.from_bytes(tr.get(("changes",)) or b"", "little")

    def finish(self, tr: TenantTransaction, run: str, trace: Trace) -> str:
        """Write the trace of a run."""
        self._ponder(run)
        tr.set(("trace", run), json.dumps(trace).encode())
        return run

    def note_wait(self, wait: WorkflowWait) -> None:
        """Note that a run is about to wait."""
        if wait not in self._ledger.waits_began_us:
            self._ledger.waits_began_us[wait] = self._host.world.now_us()
            self._answer(*self._items[wait.run], wait.signal)

    def note_effect(self, run: str, label: int, call: PlannedCall) -> None:
        """Note that a run is about to call an effect."""
        self._ledger.planned_effects[RunStep(run, label)] = call

    def shape_of(self, order: str) -> Shape:
        """Return what the workflow of an order does."""
        return self._shape_of(order)

    def tenant_at(self, place: Where, home: Tenant) -> Tenant | None:
        """Return the tenant on which a call acts; None: the workflow's own."""
        neighbours = self._neighbours_of(home)
        return {Where.HOME: None, Where.BESIDE: neighbours.beside, Where.ELSEWHERE: neighbours.elsewhere}[place]

    def receiver_of(self, number: int) -> tuple[str, Tenant]:
        """Return whom a workflow signals."""
        return self._receiver_of(number)

    def _token(self) -> str:
        return self._host.random.randbytes(8).hex()

    def _ponder(self, run: str) -> None:
        self._overtake(self._host, *self._items[run])
        if self._host.random.random() < 0.3:
            self._host.clock.sleep_us(self._host.random.choice([1_000, 20_000, 20_000, 300_000]))

    def _fail(self, failing: Failing) -> None:
        if failing is Failing.NEVER or self._host.random.random() < 0.5:
            return
        raise PermanentError("drawn") if failing is Failing.FOR_GOOD else RuntimeError("drawn")


class _Run:
    """One replay of a workflow's function."""

    def __init__(self, code: WorkflowCode, wf: WorkflowContext, order: str) -> None:
        self._code = code
        self._wf = wf
        self._order = order
        self._run = wf.run.hex()
        state = wf.state or {"next": 0, "segment": 0, "trace": []}
        self._next: int = state["next"]
        self._segment: int = state["segment"]
        self._waits: Counter[str] = Counter()
        self._trace: Trace = list(state["trace"])
        self._under: list[HeldLock] = []

    def run(self) -> str:
        if self._wf.state is not None:
            self._wf.checkpoint(self._wf.state)  # As a loop does whose body begins with its checkpoint.
        shape = self._code.shape_of(self._order)
        self._make_all(deque(shape.calls))
        if shape.fails:
            raise PermanentError("as planned")
        if shape.finishes:
            return self._wf.finish(self._code.finish, self._run, self._trace)
        return self._wf.step(self._code.finish, self._run, self._trace)

    def _make_all(self, calls: deque[PlannedCall]) -> None:
        while calls:
            call = calls.popleft()
            if call.number < self._next or self._wf.version < call.since:
                continue
            if call.what is What.LOCK:
                self._hold(call, deque(calls.popleft() for _ in range(min(call.holds, len(calls)))))
            else:
                self._make(call)

    def _hold(self, call: PlannedCall, held: deque[PlannedCall]) -> None:
        """Make calls under locks. Blocks are not nested, and have no checkpoints."""
        if self._under:
            self._make_all(held)
            return
        key = (LOCK_NAME, self._order.count("."), call.lock)
        tenants = {self._on(each) or self._wf.tenant for each in (call, replace(call, place=call.also or call.place))}
        with self._wf.lock(*((tenant, key) for tenant in sorted(tenants)), shared=call.shared):
            self._under = [[*tenant, *key] for tenant in sorted(tenants)]
            self._make_all(held)
            self._under = []

    def _make(self, call: PlannedCall) -> None:
        label = label_of(call.number)
        try:
            self._calls[call.what](self, call, label)
        except (EffectUnknown, CallTimeout, StepFailed, ItemFailed, ItemGone, PermanentError) as error:
            self._note(label, _ANSWERS.get(type(error), FAILED))
            if not (call.catches or isinstance(error, ItemGone)):
                raise

    def _note(self, label: int, answer: object) -> None:
        self._trace.append([label, answer])

    def _on(self, call: PlannedCall) -> Tenant | None:
        return self._code.tenant_at(call.place, self._wf.tenant)

    def _step(self, call: PlannedCall, label: int) -> None:
        retry = OwnRetries.get(call.failing)
        undo = self._code.undo if call.has_undo else None
        args = (self._run, label, call.has_undo, call.failing.name, self._under)
        self._note(
            label, self._wf.step(self._code.do, *args, name=call.name, on=self._on(call), undo=undo, retry=retry)
        )

    def _effect(self, call: PlannedCall, label: int) -> None:
        undo = self._code.pay_back if call.has_undo else None
        self._code.note_effect(self._run, label, call)
        retry = OwnRetries.get(call.failing)
        args = (self._run, label, call.failing.name)
        self._note(
            label, self._wf.effect(self._code.pay, *args, name=call.name, once=call.once, undo=undo, retry=retry)
        )

    def _read(self, call: PlannedCall, label: int) -> None:
        """Read, and do one more step if the number is odd: what was read decides what is done."""
        changes = self._wf.read(self._code.look, name=call.name, on=self._on(call))
        self._note(label, changes)
        if changes % 2:
            extra = label_of(call.number, 1)
            args = (self._run, extra, False, Failing.NEVER.name, self._under)
            self._note(extra, self._wf.step(self._code.do, *args, name="odd", on=self._on(call)))

    def _wait(self, call: PlannedCall, label: int) -> None:
        occurrence = self._waits[call.signal]
        self._waits[call.signal] += 1
        self._code.note_wait(WorkflowWait(self._run, self._segment, call.signal, occurrence))
        self._note(label, self._wf.wait_for(call.signal, timeout=call.timeout_s, default=NOTHING))

    def _sleep(self, call: PlannedCall, label: int) -> None:
        self._wf.sleep(call.duration_s)

    def _call(self, call: PlannedCall, label: int) -> None:
        kind = KIND if call.has_undo else CHORE
        payload = {"order": f"{self._order}.{call.number}"}
        self._note(label, self._wf.call(kind, payload, on=self._on(call), timeout=call.timeout_s, name=call.name))

    def _gather(self, call: PlannedCall, label: int) -> None:
        places = [Where.HOME, call.place, Where.ELSEWHERE]
        calls = [
            child(
                KIND if number == 1 else CHORE,
                {"order": f"{self._order}.{call.number}.{number}"},
                on=self._code.tenant_at(places[number], self._wf.tenant),
                name=call.name,
            )
            for number in range(call.children)
        ]
        results = self._wf.gather(calls, at_least=call.at_least, timeout=call.timeout_s)
        for number, result in enumerate(results):
            self._note(label_of(call.number, number + 1), _answer_of(result))

    def _enqueue(self, call: PlannedCall, label: int) -> None:
        self._wf.enqueue(CHORE, {"order": f"{self._order}.{call.number}"}, on=self._on(call), name=call.name)

    def _signal(self, call: PlannedCall, label: int) -> None:
        item, tenant = self._code.receiver_of(int(self._wf.random() * 1_000))
        token = f"{self._run} {label}"
        self._wf.signal(item, call.signal, token, on=tenant, name=call.name)
        self._note(label, token)

    def _checkpoint(self, call: PlannedCall, label: int) -> None:
        if self._under:
            return
        self._segment += 1
        self._waits.clear()
        self._wf.checkpoint({"next": call.number + 1, "segment": self._segment, "trace": self._trace})

    _calls: ClassVar = {
        What.STEP: _step, What.EFFECT: _effect, What.READ: _read, What.WAIT: _wait, What.SLEEP: _sleep,
        What.CALL: _call, What.GATHER: _gather, What.ENQUEUE: _enqueue, What.SIGNAL: _signal,
        What.CHECKPOINT: _checkpoint,
    }  # fmt: skip


def _answer_of(result: object) -> object:
    if result is UNFINISHED:
        return OPEN
    return FAILED if isinstance(result, Exception) else result
