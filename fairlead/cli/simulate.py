"""simulate: the fleet, or an application, in simulated worlds with faults, each drawn from a seed."""

import os
import shlex
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from rich.table import Table

from fairlead.app_simulation.application import NotDeterministic, SimulatedApp, simulated_app
from fairlead.cli.errors import INTERRUPTED
from fairlead.cli.output import example, json_option, progress, show, table
from fairlead.workflows.system_kinds import SYSTEM_KINDS

if TYPE_CHECKING:
    from fairlead.simulation.campaign import CampaignResult
    from fairlead.simulation.reduction import Reduction
    from fairlead.simulation.trial import Report

FAILED = 1  # The exit code when a promise was broken, or a rare point never reached.
SEEDS = 100  # Half a minute on two cores.
SEED_MAX = 2**63 - 1
SIZE_MAX = 100_000


class Subject(NamedTuple):
    """The subject of a simulation: an application by its name, or the standard workload, and a reduction of both."""

    reference: str | None
    reduction: "Reduction"

    @property
    def code(self) -> Callable[[], SimulatedApp] | None:
        """A function that loads the application, in any process."""
        return None if self.reference is None else partial(simulated_app, self.reference)

    @property
    def kinds(self) -> set[str]:
        """The kinds of the application's own handlers."""
        return set() if self.reference is None else set(simulated_app(self.reference).registry.handlers) - SYSTEM_KINDS

    def run(self, seed: int) -> "list[Report]":
        """Run the worlds of a seed, up to the first that breaks a promise."""
        from fairlead.simulation.campaign import run_worlds

        return run_worlds(seed, self.reduction, self.code)

    def command(self, seed: int) -> str:
        """Return the command that replays a seed."""
        typed = ["fairlead", "simulate", *([self.reference] if self.reference else []), "--seed", str(seed)]
        if self.reduction.faults is not None:
            typed += ["--faults", ", ".join(self.reduction.faults) or "none"]
        if sizes := self.reduction.sizes():
            typed += ["--size", ",".join(f"{name}={number}" for name, number in sizes.items())]
        return shlex.join(typed)


class Faults(click.ParamType["tuple[str, ...]"]):
    """Names of faults, such as "kills, pauses", or "none"."""

    name = "names"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> "tuple[str, ...]":
        """Return the names, in the order of `fairlead.simulation.faults.FAULTS`."""
        from fairlead.simulation.faults.table import FAULTS
        from fairlead.simulation.reduction import in_table_order

        names = [] if value.strip() == "none" else [name.strip() for name in value.split(",")]
        for name in names:
            if name not in FAULTS:
                self.fail(f"there is no fault {name!r}. There are: {', '.join(FAULTS)}; or none.", param, ctx)
        return in_table_order(names)


class Sizes(click.ParamType["dict[str, int]"]):
    """Numbers by name, such as items=12,consumers=1."""

    name = "what=number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, int]:
        """Return the numbers by name."""
        from fairlead.simulation.reduction import SIZES

        pairs = [each.strip().partition("=") for each in value.split(",")]
        sizes: dict[str, int] = {}
        for what, equals, number in pairs:
            if what not in SIZES:
                self.fail(
                    f"{what!r} has no size. What has: {', '.join(SIZES)}; write items=12,consumers=1.", param, ctx
                )
            if what in sizes:
                self.fail(f"{what} is given twice: {sizes[what]} and {number}.", param, ctx)
            if not (number.isdecimal() and 1 <= int(number) <= SIZE_MAX):
                self.fail(f"{what}{equals}{number}: write {what}=NUMBER, from 1 to {SIZE_MAX:,}.", param, ctx)
            sizes[what] = int(number)
        return sizes


@click.command(epilog=example("fairlead simulate --seeds 1000\n  fairlead simulate shop:app"))
@click.argument("reference", metavar="[APP]", required=False)
@click.option("--seeds", type=click.IntRange(1, 10_000_000), help=f"How many worlds.  [default: {SEEDS}]")
@click.option("--first", type=click.IntRange(0, SEED_MAX), help="The first seed; the others follow.  [default: 0]")
@click.option("--seed", type=click.IntRange(0, SEED_MAX), help="Replay this one instead, and show its events.")
@click.option("--faults", type=Faults(), help='Only these: "kills, pauses", or none.  [default: drawn]')
@click.option("--size", "sizes", type=Sizes(), help="Sizes of the world: items=12,consumers=1.  [default: drawn]")
@click.option(
    "--processes",
    type=click.IntRange(1, 1_024),
    default=os.cpu_count() or 1,
    help="How many worlds run at once; default: one per core.",
)
@click.option("--verbose", "-v", is_flag=True, help="Without APP: show how often each rare point was reached.")
@json_option
def simulate(
    reference: str | None,
    seeds: int | None,
    first: int | None,
    seed: int | None,
    faults: "tuple[str, ...] | None",
    sizes: "dict[str, int] | None",
    processes: int,
    verbose: bool,
) -> None:
    """Run scanner, manager, worker, coordinator and zones in simulated worlds with faults.

    Each seed draws a cluster of three consumers and two shards, the load, the settings, and the faults: kills, pauses,
    lost and late messages, commits of unknown result, clocks that jump. Invariants are checked after every commit and
    at the end. Then a few clients share one queue zone, and their answers must be linearizable: those of a zone that
    does one operation at a time. The same seed is the same world, event by event.

    With APP, such as shop:app, the application's own handlers run, unmodified, for its requests
    (`@app.simulation.request`). Its checks (`@app.simulation.check`) run at the end. Its configured stores are not
    touched.

    A campaign ends early when three seeds have broken the same promise.

    The first seed that breaks a promise is run again with smaller sizes and fewer faults, as long as it still breaks
    that promise. The smallest such run is shown, with its last events and the command that replays it. To reduce
    another seed, begin with it: --first SEED --seeds 1.

    From 1,000 seeds of the fleet's own workload on, each rare point of the code must be reached; --verbose shows how
    often each was. Exits with 1 if a promise was broken or a rare point was never reached. Ctrl-C ends early and shows
    the findings so far; if there are none, it exits with 130.
    """
    from fairlead.simulation.reduction import Reduction

    subject = Subject(reference, Reduction(faults=faults, **(sizes or {})))
    if reference is not None:
        simulated_app(reference)  # Raises here, not in another process.
        if subject.reduction.tenants is not None:
            raise click.UsageError("An application's requests choose its tenants: leave tenants= out of --size.")
    if seed is None:
        first, seeds = 0 if first is None else first, SEEDS if seeds is None else seeds
        if first + seeds - 1 > SEED_MAX:
            raise click.UsageError(f"The last seed would be {first + seeds - 1}; the largest is {SEED_MAX}.")
        _campaign(first, seeds, subject, processes, verbose=verbose)
    elif seeds is not None or first is not None:
        raise click.UsageError("--seed replays one world; --seeds and --first are for many.")
    else:
        _replay(seed, subject)


# The simulator and greenlet are imported where they are needed: other commands start without them.


def _campaign(first: int, seeds: int, subject: Subject, processes: int, *, verbose: bool) -> None:
    from fairlead.simulation.campaign import STANDARD_SEEDS, CampaignResult, campaign
    from fairlead.simulation.reduction import NO_REDUCTION

    started_s = time.monotonic()
    tally, interrupted = CampaignResult(), False
    smallest: Report | None = None
    try:
        with progress("simulating") as advance:
            some = range(first, first + seeds)
            for outcome in campaign(some, processes=processes, reduction=subject.reduction, code=subject.code):
                if subject.reference is not None and not tally.seeds:
                    _check_replay(first, subject, outcome.events)
                tally.add(outcome)
                advance(tally.seeds, seeds)
                if tally.repeated is not None:
                    break
        if tally.broken:
            for smaller in _reduced_runs(tally.broken[0].seed, subject):
                smallest = smaller
    except KeyboardInterrupt:
        interrupted = True
    standard = subject == Subject(None, NO_REDUCTION) and tally.seeds >= STANDARD_SEEDS
    answer = {
        "seeds": tally.seeds,
        "violations": [{**each._asdict(), "replay": subject.command(each.seed)} for each in tally.broken],
        "probes": dict(tally.probes),
        "virtual_s": round(tally.virtual_us / 1e6, 1),
        "wall_s": round(time.monotonic() - started_s, 1),
        "missed": tally.missed if standard else [],
        "never_ran": sorted(subject.kinds - set(tally.ran)),
        "never_returned": sorted(kind for kind, count in tally.ran.items() if not count),
        "interrupted": interrupted,
        "stopped": _why_stopped(tally, seeds, subject),
        "smallest": None if smallest is None else _smallest_answer(smallest, subject),
    }
    show(answer, lambda: _campaign_lines(answer, tally, smallest, subject, verbose=verbose))
    if tally.broken or answer["missed"]:
        raise click.exceptions.Exit(FAILED)
    if interrupted:
        raise click.exceptions.Exit(INTERRUPTED)


def _why_stopped(tally: "CampaignResult", seeds: int, subject: Subject) -> str | None:
    """Return why a campaign ran fewer seeds than it was asked for, if it was not interrupted."""
    from fairlead.simulation.campaign import SAME_VIOLATION_MAX
    from fairlead.simulation.run import DRAINS

    if tally.repeated is None or tally.seeds == seeds:
        return None
    why = f"after {tally.seeds:,} of {seeds:,} seeds, as {SAME_VIOLATION_MAX} broke the same promise: {tally.repeated}"
    if tally.repeated == DRAINS and not subject.reduction.sizes():
        why += "; an item that always fails is retried until the limit, which --size items=5,consumers=1 reaches sooner"
    return why


def _check_replay(seed: int, subject: Subject, events: str) -> None:
    """Raise NotDeterministic if two runs of a seed differ."""
    from fairlead.simulation.trial import first_difference

    found = first_difference(events, lambda: subject.run(seed)[-1])
    if found is not None:
        raise NotDeterministic(seed=seed, **found._asdict())


def _reduced_runs(seed: int, subject: Subject) -> "Iterator[Report]":
    """Run a failing seed again with smaller and smaller reductions, and yield each run that still fails."""
    from fairlead.simulation.shrink import runs_for, shrink

    report = subject.run(seed)[-1]
    if not report.violations:
        raise NotDeterministic(seed=seed)
    with progress(f"making seed {seed} smaller") as advance:
        runs, runs_max = 0, runs_for(report)

        def again(less: "Reduction") -> "Report":
            nonlocal runs
            runs += 1
            advance(runs, runs_max)
            return subject._replace(reduction=less).run(seed)[-1]

        yield from shrink(report, again, runs_max=runs_max)


def _replay(seed: int, subject: Subject) -> None:
    from fairlead.simulation.campaign import broken_by, events_of

    reports = subject.run(seed)
    broken = broken_by(reports[-1])
    if broken:
        reports = reports[-1:]
    answer = {
        "seeds": 1,
        "violations": [{**each._asdict(), "replay": subject.command(seed)} for each in broken],
        "virtual_s": round(sum(report.virtual_us for report in reports) / 1e6, 1),
        "events": events_of(reports),
    }
    lines = [line for report in reports for line in report.lines]
    end = [f"seed {seed}: {each.oracle}: {each.what}" for each in broken] or [f"seed {seed}: no violation"]
    show(answer, lambda: [*lines, f"digest of the events: {answer['events']}", *end])
    if broken:
        raise click.exceptions.Exit(FAILED)


# --- What is shown ---


def _campaign_lines(
    answer: dict[str, Any], tally: "CampaignResult", smallest: "Report | None", subject: Subject, *, verbose: bool
) -> Iterator[str | Table]:
    if subject.reference is None and verbose:
        yield _probes_table(tally)
    for each in answer["violations"]:
        yield f"seed {each['seed']}: {each['oracle']}: {each['what']}"
        yield f"  replay: {each['replay']}"
    if smallest is not None:
        yield from _smallest_lines(smallest, subject)
    if answer["missed"]:
        yield f"never reached in {tally.seeds:,} seeds: {', '.join(answer['missed'])}"
    if answer["never_ran"] and tally.seeds:
        yield f"handlers that never ran, and so were not tested: {', '.join(answer['never_ran'])}"
    if answer["never_returned"]:
        yield f"handlers that ran and never returned: {', '.join(answer['never_returned'])}"
    if answer["stopped"]:
        yield f"stopped early, {answer['stopped']}"
    nothing = "no violation" if tally.seeds else "nothing was found out"
    found = f"violations: {len(tally.broken)}" if tally.broken else nothing
    early = ", interrupted" if answer["interrupted"] else ""
    yield f"{tally.seeds:,} seeds, {answer['virtual_s']:,} virtual seconds in {answer['wall_s']} s{early}: {found}"


def _probes_table(tally: "CampaignResult") -> Table:
    """Return how often each rare point was reached, the rarest first."""
    rows = sorted(tally.probes.items(), key=lambda row: (row[1], row[0]))
    return table(("#reached", "point"), [(f"{count:,}" if count else "never", name) for name, count in rows])


def _smallest_lines(report: "Report", subject: Subject) -> Iterator[str]:
    answer = _smallest_answer(report, subject)
    (violation,) = report.violations
    yield f"\nThe smallest run found in which seed {report.seed} breaks the same promise:"
    yield f"  faults: {', '.join(answer['faults']) or 'none'}"
    yield f"  {', '.join(f'{name}: {number}' for name, number in answer['size'].items())}"
    left_out = "" if subject.reference is None else ", without commits"
    yield f"  the last of {report.end} events{left_out} (microseconds, whose turn, what):"
    yield from (f"    {line}" for line in answer["last_events"])
    yield f"  {violation.oracle}: {violation.what}"
    yield f"  replay: {answer['replay']}"
    yield f"  digest of the events: {report.events}\n"


def _smallest_answer(report: "Report", subject: Subject) -> dict[str, Any]:
    from fairlead.simulation.application import without_commits
    from fairlead.simulation.reduction import whole_plan
    from fairlead.simulation.trial import LAST_EVENTS

    events = report.lines[: report.end]
    size = whole_plan(report.plan).sizes()
    if subject.reference is not None:
        del size["tenants"]  # Its requests choose them.
        events = without_commits(events)
    return {
        "seed": report.seed,
        "faults": report.plan.faults,
        "size": size,
        "replay": subject._replace(reduction=report.reduction).command(report.seed),
        "events": report.events,
        "last_events": events[-LAST_EVENTS:],
    }
