"""run, submit: run a fleet, and submit handlers to a running one."""

import logging
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from io import TextIOWrapper
from pathlib import Path
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any, TextIO

import click
from rich.console import Console
from rich.live import Live
from rich.text import Text

from fairlead import fleet
from fairlead.actors.dispatch.pickup_latency import without_buckets
from fairlead.actors.runtime.garbage_collection import collect_rarely
from fairlead.app import App
from fairlead.cli.arguments import Duration
from fairlead.cli.errors import INTERRUPTED
from fairlead.cli.output import example, json_option, show, wants_json
from fairlead.cli.store_options import (
    StoreOptions,
    accepts_store_options,
    application_in_force,
    config_option,
    settings_option,
)
from fairlead.fleet import RUNTIMES, Fleet
from fairlead.loading import load_attribute
from fairlead.telemetry.fleet_metrics import FleetMetrics, export_fleet_metrics
from fairlead.telemetry.logs import log_to_stderr

LIBRARY = "fairlead."  # How the kinds of the library begin: moves, signals, cleanups.
LINE_S = 0.5  # Between two updates of the live line, and two checks for a signal or the loss of the fleet.
ALWAYS_SHOWN = ("completed", "retried", "dead_lettered", "dropped", "lost", "held")  # Always shown, zeros too.


@click.command(epilog=example("fairlead run shop:app --runtime threads --set consumer.slots=32"))
@click.argument("reference", metavar="[APP]", required=False)
@click.option(
    "--runtime",
    type=click.Choice(RUNTIMES),
    default="ray",
    show_default=True,
    help="What runs the actors: Ray, or threads.",
)
@click.option("--address", metavar="ADDRESS", help="The Ray cluster to join; without it Ray is started here.")
@settings_option
@config_option
@json_option
def run(
    reference: str | None, runtime: str, address: str | None, settings: tuple[str, ...], config_path: Path | None
) -> None:
    """Run the items of APP, written MODULE:ATTRIBUTE, until SIGTERM or Ctrl-C; then drain.

    Without APP it is the one that FAIRLEAD_APP names.

    A second Ctrl-C ends the process at once. Another consumer runs its items again, some ten seconds later.
    """
    if address is not None and runtime != "ray":
        raise click.UsageError("--address goes with --runtime ray.")
    reference = application_in_force(reference)
    if reference is None:
        raise click.UsageError("Name the application, MODULE:ATTRIBUTE, or set FAIRLEAD_APP.")
    app = StoreOptions((), reference, config_path, settings).app(must_exist=False, may_be_in_memory=True)
    log_to_stderr(app.config.log_level)
    if runtime == "ray":
        click.echo(
            "starting the fleet on Ray, which takes some seconds"
            if address is None
            else f"joining the Ray cluster at {address}",
            err=True,
        )
    else:
        collect_rarely()
    try:
        with stop_signal() as stopped, redirect_stdout(_shown_to()), export_fleet_metrics(app) as fleet_metrics:
            counts = _run_until(
                stopped, app, fleet_metrics, fleet.start(app, reference, runtime=runtime, address=address), reference
            )
    except KeyboardInterrupt:  # The second signal. The first one only begins the drain.
        click.echo(
            "ended at once: another consumer, or the next that starts, runs what was held within seconds", err=True
        )
        raise click.exceptions.Exit(INTERRUPTED) from None
    show(counts, lambda: [_line(counts)])


@click.command(epilog=example("fairlead submit reports:monthly --kind report --app shop:app"))
@click.argument("function", metavar="MODULE:FUNCTION")
@click.option("--kind", required=True, help="The kind that it handles.")
@click.option("--timeout", type=Duration(), default="1h", show_default=True, help="How long one attempt may take.")
@click.option("--max-running", type=int, help="How many may run at once in a consumer.")
@click.option("--transactional", is_flag=True, help="Its effects commit together with the completion.")
@click.option("--in-store", "store", metavar="NAME", help="With --transactional: the external store it runs in.")
@click.option("--drop", is_flag=True, help="Delete an item that failed for good, and keep no dead letter.")
@click.option(
    "--keep-result", type=Duration(), help="How long its return value is kept: 90s, 5min, 2h; default: not at all."
)
@accepts_store_options
@json_option
def submit(store_options: StoreOptions, function: str, kind: str, **options: Any) -> None:
    """Submit a handler to a running fleet. The function is pickled by value; workers load it within seconds."""
    version = store_options.app().submit(load_attribute(function), kind=kind, **options)
    show({"kind": kind, "version": version}, lambda: [f"submitted version {version} of {kind}"])


WaitForStop = Callable[[], bool]  # waits for at most `LINE_S`, and returns whether to stop


@contextmanager
def stop_signal() -> Iterator[WaitForStop]:
    """Yield a function that waits for the first SIGTERM or Ctrl-C. The second one has its usual effect."""
    # Not an event: the signal handler may interrupt the main thread while it holds the event's lock.
    signals: SimpleQueue[int] = SimpleQueue()
    before: dict[int, Any] = {}

    def note(number: int, _: FrameType | None) -> None:
        signals.put(number)
        signal.signal(number, before[number])

    def stopped() -> bool:
        try:
            # With a timeout: a signal that arrives just before the wait does not end it, and is handled afterwards.
            signals.get(timeout=LINE_S)
        except Empty:
            return False
        return True

    for number in (signal.SIGTERM, signal.SIGINT):
        before[number] = signal.signal(number, note)
    try:
        yield stopped
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _run_until(
    stopped: WaitForStop, app: App, fleet_metrics: FleetMetrics, running: Fleet, reference: str
) -> dict[str, int]:
    """Watch a fleet until it has to stop, drain it, and return its counts."""
    fleet_metrics.fleet = running
    click.echo(f"running {_kinds_in_words(app, reference)}", err=True)
    if app.config.metrics_port:
        click.echo(f"metrics at http://{app.config.metrics_host}:{app.config.metrics_port}/metrics", err=True)
    _watch(running, fleet_metrics, stopped)
    running.begin_drain()
    held, drain_s = running.counts().get("held", 0), app.config.consumer.drain_ms / 1000
    click.echo(
        f"draining: no new item starts, running items may finish within {drain_s:g} s; {held:,} held now"
        " (Ctrl-C again: at once)",
        err=True,
    )
    return {**dict.fromkeys(ALWAYS_SHOWN, 0), **without_buckets(running.stop())}


def _shown_to() -> TextIO:
    """Return the stream for the output of handlers: standard output, unless it has to hold one JSON object.

    Buffered by lines: into a pipe, as to `tee` or a journal, Python buffers eight kilobytes, and Ray flushes nothing.
    """
    if wants_json():
        return sys.stderr
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    return sys.stdout


class _AboveLine(logging.StreamHandler[Any]):
    """Writes log records above the live line. The console redraws the line below them."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler`."""
        try:
            self._console.print(Text(self.format(record)), soft_wrap=True)
        except (OSError, ValueError):
            self.handleError(record)


@contextmanager
def _logs_above(console: Console) -> Iterator[None]:
    """Print through the console what is logged to standard error meanwhile."""
    root = logging.getLogger()
    replaced = [each for each in root.handlers if isinstance(each, logging.StreamHandler) and each.stream is sys.stderr]
    above: list[logging.Handler] = []
    for each in replaced:
        handler = _AboveLine(console)
        handler.setLevel(each.level)
        handler.setFormatter(each.formatter)
        root.removeHandler(each)
        root.addHandler(handler)
        above.append(handler)
    try:
        yield
    finally:
        for new, old in zip(above, replaced, strict=True):
            root.removeHandler(new)
            root.addHandler(old)


def _watch(running: Fleet, fleet_metrics: FleetMetrics, stopped: WaitForStop) -> None:
    """Show a live line on standard error, if it is a terminal, until the fleet has to stop; raise if it is lost."""
    if not sys.stderr.isatty():
        while not stopped():
            running.check()
            fleet_metrics.check()
        return
    console = Console(stderr=True)
    with _logs_above(console), Live(console=console, transient=True, auto_refresh=False) as live:
        while not stopped():
            running.check()
            fleet_metrics.check()
            live.update(Text(_line(running.counts())), refresh=True)


def _kinds_in_words(app: App, reference: str) -> str:
    kinds = sorted(handler.kind for handler in app.registry if not handler.kind.startswith(LIBRARY))
    if not kinds:
        module = reference.partition(":")[0]
        return f"nothing: no handler is registered; import the modules that register handlers in {module}"
    return f"the {'kind' if len(kinds) == 1 else 'kinds'} {', '.join(kinds)}"


def _line(counts: dict[str, int]) -> str:
    return "  ".join(f"{name.replace('_', '-')} {counts.get(name, 0):,}" for name in ALWAYS_SHOWN)
