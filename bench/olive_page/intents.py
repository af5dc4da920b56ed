"""Figures 9 and 10: operations as steps of workflows, beside the same operations bare (section 7.1)."""

from matplotlib.figure import Figure

from bench.figures import Runs, Section
from bench.olive_page.data import ENGINE_NAMES
from bench.olive_page.plots import Value, groups_of_bars
from bench.olive_page.sections import ms, reached
from bench.paper.plots import panels

OPERATIONS = ("read", "update")


def draw9(runs: Runs) -> Figure:
    """Draw the latencies, a panel for each operation on each engine."""
    drawn, axes = panels("Figure 9: one operation, bare and in an intent", len(OPERATIONS), rows=len(runs))
    places = [(engine, operation) for engine in runs for operation in OPERATIONS]
    for (engine, operation), ax in zip(places, axes, strict=True):
        rows = [row for row in runs[engine].rows if row["operation"] == operation]
        series = {row["what"]: [Value(row["mean_ms"], row["within_ms"])] for row in rows}
        groups_of_bars(ax, [operation], series, unit="ms")
        ax.set_title(ENGINE_NAMES[engine])
    return drawn


def table9(runs: Runs) -> list[list[str]]:
    """Return a line for each row of each engine."""
    body = [
        [
            ENGINE_NAMES[engine],
            row["operation"],
            row["what"],
            ms(row["mean_ms"], row["within_ms"]),
            f"{row['of_bare']:g}",
        ]
        for engine, run in runs.items()
        for row in run.rows
    ]
    return [["store", "operation", "what", "ms", "of bare"], *body]


def draw10(runs: Runs) -> Figure:
    """Draw the times of an operation against the operations of an intent, a panel for each engine."""
    drawn, axes = panels("Figure 10: an operation of intents with k operations", len(runs))
    for (engine, run), ax in zip(runs.items(), axes, strict=True):
        series = {
            "bare": [Value(row["bare_ms"]) for row in run.rows],
            "in an intent": [Value(row["step_ms"]) for row in run.rows],
        }
        groups_of_bars(ax, [f"k = {row['operations']}" for row in run.rows], series, unit="ms for each operation")
        ax.set_title(ENGINE_NAMES[engine])
    return drawn


def table10(runs: Runs) -> list[list[str]]:
    """Return a line for each number of operations on each engine."""
    head = ["store", "k", "bare, ms", "in an intent, ms", "of a workflow", "bar", "reached", "of all", "of cpu"]
    body = [
        [
            ENGINE_NAMES[engine], str(row["operations"]), f"{row['bare_ms']:g}", f"{row['step_ms']:g}",
            f"{row['of_a_workflow']:g}", f"{row['bar']:g}", reached(row["of_a_workflow"] <= row["bar"]),
            f"{row['of_all']:g}", f"{row['of_cpu']:g}",
        ]
        for engine, run in runs.items()
        for row in run.rows
    ]  # fmt: skip
    return [head, *body]


FIGURE_9 = Section(
    title="Figure 9: one operation in an intent",
    draw=draw9,
    table=table9,
    what="""
An intent is a workflow here, and its operation a step. Each mean is of 1,000. *Bare* is a `transact`. *In an intent* is
from the begin of the workflow's function to the completion of its item. *Intent* begins with the call of `enqueue`, as
in the paper, so it contains the pickup by an idle fleet.
""",
    differences="""
**The paper** states no number for this figure, only "significant latency overhead". Its intent writes to the intents
table, to the log of the object, and to a results table. Ours commits the enqueue, and then the step together with the
completion. A bare read commits nothing here. So the ratio of reads says how much dearer a commit is than a read.
""",
)

FIGURE_10 = Section(
    title="Figure 10: several operations in an intent",
    draw=draw10,
    table=table10,
    what="""
64 workflows run at once, with k updates each, beside 64 threads with k bare updates each. *Of a workflow* is the mean
time of a workflow, divided by that of a bare thread. *Of all* is the same for the time until all 64 have ended. *Of
cpu* is the processor time of a step, divided by that of a bare update. The figures contain no enqueue and no dequeue.
""",
    differences="""
**The paper** states no number, only that an operation in an intent is "comparable to" a direct one, because the costs
of an intent are spread over its operations. Its client waits for a store across a network. Ours is one process in which
64 threads share one interpreter lock, and a step computes more than a bare update.
[Where the time goes](../performance.md#what-a-step-of-a-workflow-costs) says what.
""",
)
