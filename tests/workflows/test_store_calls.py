"""What each call of a workflow asks of its store, as `docs/performance.md` says in a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import pytest

from fairlead import App
from fairlead.testing import drain
from fairlead.workflows.context import WorkflowContext
from fairlead.workflows.run_log import RunLog
from fairlead.zones.engines.optimistic.range_read import SnapshotReads
from fairlead.zones.engines.optimistic.transaction import Transaction
from fairlead.zones.workflow import children
from tests.style.sources import ROOT
from tests.workflows.application import two_shards

PAGE = "docs/performance.md"
HEAD = "| a call of a workflow | transactions | reads | writes |"
CALLS = [
    *[(Transaction, name, "writes") for name in ("set", "clear", "clear_range", "_update", "set_versionstamped_key")],
    *[(each, name, "reads") for each in (Transaction, SnapshotReads) for name in ("get", "get_range")],
    (Transaction, "commit", "transactions"),
]
NEVER_ENDS_S = 10 * 365 * 86_400


class Cost(NamedTuple):
    """What is counted between two moments, without what the body of a step reads and writes."""

    transactions: int
    reads: int
    writes: int


def write(tr: Any) -> None:
    tr.set(("count",), b"1")


def read_and_write(tr: Any) -> None:
    tr.get(("count",))
    tr.set(("count",), b"1")


NOTHING, READS = Cost(0, 0, 0), Cost(0, 1, 0)  # Of a body.
WRITES, READS_AND_WRITES = Cost(0, 0, 1), Cost(0, 1, 1)


class Counted:
    """An application with two shards, and the calls to their stores."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.app: App = two_shards()
        self.app.handler("child")(_child)
        self.calls: Counter[str] = Counter()
        self.monkeypatch = monkeypatch
        self.home = self.app.tenant("shop", "alice")
        tenants = [self.app.tenant("shop", f"n{number}") for number in range(100)]
        self.neighbour = next(tenant for tenant in tenants if tenant.shard.name == self.home.shard.name)
        self.participant = next(tenant for tenant in tenants if tenant.shard.name != self.home.shard.name)
        for owner, name, what in CALLS:
            monkeypatch.setattr(owner, name, self._counting(getattr(owner, name), what))

    def _counting(self, call: Callable[..., Any], what: str) -> Callable[..., Any]:
        def counting(*arguments: Any, **options: Any) -> Any:
            self.calls[what] += 1
            return call(*arguments, **options)

        return counting

    def now(self) -> Cost:
        return Cost(*(self.calls[what] for what in Cost._fields))

    def since(self, before: Cost, body: Cost = NOTHING) -> Cost:
        """Return what was counted since, without what a body did."""
        return Cost(*(now - then - own for now, then, own in zip(self.now(), before, body, strict=True)))

    def call(self, call: Callable[[Any], Any], body: Cost, *, behind: int = 2) -> Cost:
        """Return the cost of a call behind some steps that only write."""
        found: list[Cost] = []

        def work(wf: WorkflowContext) -> None:
            for _ in range(behind):
                wf.step(write, name="before")
            before = self.now()
            call(wf)
            found.append(self.since(before, body))

        self.app.workflow("w")(work)
        self.home.enqueue("w")
        drain(self.app, replays=False)
        return found[0]

    def method(self, of: type, name: str) -> list[Cost]:
        """Return a list to which each call of a method adds its cost."""
        found: list[Cost] = []
        method = getattr(of, name)

        def noted(*arguments: Any, **options: Any) -> Any:
            before = self.now()
            result = method(*arguments, **options)
            found.append(self.since(before))
            return result

        self.monkeypatch.setattr(of, name, noted)
        return found

    # --- Calls that are measured elsewhere than around themselves ---

    def finish(self) -> Cost:
        found = self.method(RunLog, "finish")
        self.app.workflow("w")(_finish)
        self.home.enqueue("w")
        drain(self.app, replays=False)
        return found[0]._replace(writes=found[0].writes - 1)

    def suspended(self, wait: Callable[[Any], Any]) -> tuple[Cost, Cost]:
        """Return what a wait costs until the run is suspended, and what its next attempt costs until it has its log."""
        found = self.method(RunLog, "find")
        suspended = self.method(RunLog, "suspend")
        loaded = self.method(RunLog, "load")

        def work(wf: WorkflowContext) -> None:
            for _ in range(2):
                wf.step(write, name="before")
            wait(wf)

        self.app.workflow("w")(work)
        handle = self.home.enqueue("w")
        drain(self.app, replays=False)
        handle.signal("go")
        drain(self.app, replays=False)
        both = Cost(*map(sum, zip(*found[:1], suspended[0], strict=True))) if found else suspended[0]
        return both, loaded[-1]

    def signal(self, *, waits: bool) -> Cost:
        def work(wf: WorkflowContext) -> None:
            wf.wait_for("go")

        self.app.workflow("w")(work)
        handle = self.home.enqueue("w")
        if waits:
            drain(self.app, replays=False)
        before = self.now()
        handle.signal("go")
        return self.since(before)

    def report(self) -> Cost:
        """Return what the end of a child adds to the transaction that completes the child."""
        found: list[Cost] = []
        report_op = children.report_op

        def noted(*arguments: Any, **options: Any) -> Any:
            before = self.now()
            yield from report_op(*arguments, **options)
            found.append(self.since(before))

        self.monkeypatch.setattr(children, "report_op", noted)
        self.app.workflow("w")(lambda wf: wf.call("child"))
        self.home.enqueue("w")
        drain(self.app, replays=False)
        return found[0]


def _finish(wf: WorkflowContext) -> None:
    for _ in range(2):
        wf.step(write, name="before")
    wf.finish(write)


def _child(job: Any) -> None:
    """End at once."""


def _second_there(there: Any, wf: Any) -> None:
    wf.step(write, on=there, name="second")


def pay(key: str) -> str:
    return key


def _behind_another(first: Callable[[Any], Any], call: Callable[[Any], Any], counted: Counted, body: Cost) -> Cost:
    found: list[Cost] = []

    def both(wf: Any) -> None:
        first(wf)
        before = counted.now()
        call(wf)
        found.append(counted.since(before, body))

    counted.call(both, NOTHING)
    return found[0]


def _read(wf: Any) -> None:
    wf.read(lambda tr: tr.get(("count",)), name="look")


MEASURES: dict[str, Callable[[Counted], Cost]] = {
    "the first step of a run": lambda at: at.call(lambda wf: wf.step(write), WRITES, behind=0),
    "the second step of a run": lambda at: at.call(lambda wf: wf.step(write), WRITES, behind=1),
    "a later step that only writes": lambda at: at.call(lambda wf: wf.step(write), WRITES),
    "a later step that reads": lambda at: at.call(lambda wf: wf.step(read_and_write), READS_AND_WRITES),
    "a step on another tenant of the shard": lambda at: at.call(lambda wf: wf.step(write, on=at.neighbour), WRITES),
    "the first step on another shard": lambda at: at.call(lambda wf: wf.step(write, on=at.participant), WRITES),
    "the next step there": lambda at: _behind_another(
        lambda wf: wf.step(write, on=at.participant), partial(_second_there, at.participant), at, WRITES
    ),
    "`wf.read`": lambda at: at.call(_read, READS),
    "`wf.effect`": lambda at: at.call(lambda wf: wf.effect(pay), NOTHING),
    "`wf.effect` behind a read": lambda at: _behind_another(_read, lambda wf: wf.effect(pay), at, NOTHING),
    "`wf.effect` as the first call": lambda at: at.call(lambda wf: wf.effect(pay), NOTHING, behind=0),
    "`wf.effect` with `once=True`": lambda at: at.call(lambda wf: wf.effect(pay, once=True), NOTHING),
    "`wf.enqueue`": lambda at: at.call(lambda wf: wf.enqueue("child"), NOTHING),
    "`wf.checkpoint`": lambda at: at.call(lambda wf: wf.checkpoint(1) if wf.state is None else None, NOTHING),
    "`wf.finish`": Counted.finish,
    "`wf.sleep`, until it is suspended": lambda at: at.suspended(lambda wf: wf.sleep(NEVER_ENDS_S))[0],
    "`wf.wait_for`, until it is suspended": lambda at: at.suspended(lambda wf: wf.wait_for("go"))[0],
    "the next attempt, until it has its log": lambda at: at.suspended(lambda wf: wf.wait_for("go"))[1],
    "a signal to a run that waits for it": lambda at: at.signal(waits=True),
    "a signal to another run": lambda at: at.signal(waits=False),
    "the end of a child, in its completion": Counted.report,
}


def costs_of_page() -> dict[str, Cost]:
    """Return the rows of the table."""
    lines = iter((ROOT / PAGE).read_text(encoding="utf-8").splitlines())
    for line in lines:
        if line == HEAD:
            break
    next(lines)
    costs: dict[str, Cost] = {}
    for line in lines:
        if not line.startswith("|"):
            return costs
        name, *numbers = (cell.strip() for cell in line.strip("|").split("|"))
        costs[name] = Cost(*map(int, numbers))
    return costs


def test_the_page_has_a_row_for_each_call_that_is_measured() -> None:
    assert list(costs_of_page()) == list(MEASURES)


@pytest.mark.parametrize("name", MEASURES)
def test_a_call_costs_what_the_page_says(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MEASURES[name](Counted(monkeypatch)) == costs_of_page()[name]
