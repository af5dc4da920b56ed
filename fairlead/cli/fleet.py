"""run, submit: a fleet, and handlers for one that runs already."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout
from io import TextIOWrapper
from pathlib import Path
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any, TextIO

import click
from rich.console import Console
from rich.live import Live
from rich.text import Text

from actors.waits import without_waits
from fairlead import fleet
from fairlead.app import App
from fairlead.cli.output import example, json_option, show, wants_json
from fairlead.cli.target import Target, config_option, settings_option, target_options
from fairlead.fleet import HOSTS, Fleet
from fairlead.loading import load_attribute
from fairlead.telemetry.front import front
from fairlead.telemetry.logs import log_to_stderr

LINE_S = 0.5  # How often the live line is drawn, and a signal, or the loss of the fleet, looked for.
COUNTED = ("completed", "retried", "buried", "dropped", "lost", "held")  # Always shown, zeros too.


@click.command(epilog=example("fairlead run shop:app --host threads --set consumer.slots=32"))
@click.argument("reference", metavar="APP")
@click.option("--host", type=click.Choice(HOSTS), default="ray", show_default=True, help="Where the actors live.")
@click.option("--address", metavar="ADDRESS", help="The Ray cluster to join; without it Ray is started here.")
@settings_option
@config_option
@json_option
def run(reference: str, host: str, address: str | None, settings: tuple[str, ...], config_path: Path | None) -> None:
    """Run the work of APP, written MODULE:ATTRIBUTE, until SIGTERM or Ctrl-C; then let what runs finish.

    A second Ctrl-C ends it at once; leases then give the work back when they lapse.
    """
    if address is not None and host != "ray":
        raise click.UsageError("--address goes with --host ray.")
    app = Target((), reference, config_path, settings).app(must_exist=False, may_be_in_memory=True)
    log_to_stderr(app.config.log_level)
    with stop_signal() as stopped, redirect_stdout(_shown_to()), front(app) as telling:
        telling.fleet = running = fleet.start(app, reference, host=host, address=address)
        click.echo(f"running {', '.join(_kinds(app)) or 'nothing: no handler is registered'}", err=True)
        if app.config.metrics_port:
            click.echo(f"metrics at http://{app.config.metrics_host}:{app.config.metrics_port}/metrics", err=True)
        _watch(running, stopped)
        running.begin_drain()
        click.echo("draining: no new work starts, what runs may finish (Ctrl-C again: at once)", err=True)
        counts = {**dict.fromkeys(COUNTED, 0), **without_waits(running.stop())}
    show(counts, lambda: [_line(counts)])


@click.command(epilog=example("fairlead submit reports:monthly --kind report --app shop:app"))
@click.argument("function", metavar="MODULE:FUNCTION")
@click.option("--kind", required=True, help="What it handles.")
@click.option("--timeout", type=float, default=3600.0, show_default=True, help="Seconds that one attempt may take.")
@click.option("--max-running", type=int, help="How many may run at once in a consumer.")
@click.option("--transactional", is_flag=True, help="Its effects commit together with the completion.")
@click.option("--drop", is_flag=True, help="An item that failed for good is deleted instead of buried.")
@target_options
@json_option
def submit(target: Target, function: str, kind: str, **options: Any) -> None:
    """Give a running fleet a handler: the function travels by value, and workers load it within seconds."""
    version = target.app().submit(load_attribute(function), kind=kind, **options)
    show({"kind": kind, "version": version}, lambda: [f"submitted version {version} of {kind}"])


Stopped = Callable[[], bool]  # waits for `LINE_S` at most, and says whether to stop


@contextmanager
def stop_signal() -> Iterator[Stopped]:
    """Yield what waits for the first SIGTERM or Ctrl-C; the second one acts as it did before."""
    # Not an event: a signal comes between any two steps of the main thread, also while that holds the event's lock.
    signals: SimpleQueue[int] = SimpleQueue()
    before: dict[int, Any] = {}

    def note(number: int, _: FrameType | None) -> None:
        signals.put(number)
        signal.signal(number, before[number])

    def stopped() -> bool:
        try:
            # Never for ever: one that comes just before the wait begins does not end it, and is handled after it.
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


def _shown_to() -> TextIO:
    """Return where handlers print: standard output, unless that is to hold one JSON object.

    A line at a time: into a pipe, as to `tee` or a journal, Python keeps eight kilobytes back, and Ray flushes nothing.
    """
    if wants_json():
        return sys.stderr
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    return sys.stdout


def _watch(running: Fleet, stopped: Stopped) -> None:
    """Show a live line on standard error, if a person looks, until it is to stop; raise if the fleet is gone."""
    person = sys.stderr.isatty()
    with Live(console=Console(stderr=True), transient=True, auto_refresh=False) if person else nullcontext() as live:
        while not stopped():
            running.check()
            if live is not None:
                live.update(Text(_line(running.counts())), refresh=True)


def _kinds(app: App) -> list[str]:
    return sorted(handler.kind for handler in app.registry)


def _line(counts: dict[str, int]) -> str:
    return "  ".join(f"{name} {counts.get(name, 0):,}" for name in COUNTED)
