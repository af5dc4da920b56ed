"""top: the summary of an application, live in a terminal."""

import os
import select
import sys
import termios
import tty
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import click
from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fairlead.app import App
from fairlead.cli.arguments import Duration
from fairlead.cli.errors import STORE_UNUSABLE
from fairlead.cli.output import example, json_option, progress_answer, show, table, wants_json
from fairlead.cli.store_options import StoreOptions, accepts_store_options
from fairlead.formatting import ago, iso_time, printable
from fairlead.queries.activity import RECENT_SLOTS, RunningItem, busiest, by_kind, longest_running
from fairlead.queries.health import Severity
from fairlead.queries.kinds import KindSummary, kinds_of
from fairlead.queries.queues import TenantWaiting, waiting_tenants
from fairlead.queries.summary import Summary, summarize
from fairlead.status import COUNTED_MAX
from fairlead.views import progress_in_words
from fairlead.zones.durations import duration_us
from fairlead.zones.reporting.rollups import INTERVAL_US, KEPT_INTERVALS

ROWS = 10  # Of tenants, and of running items.
INTERVAL_S_MIN, INTERVAL_S_MAX = 0.2, 3600
MINUTES = KEPT_INTERVALS * INTERVAL_US // 60_000_000
_STYLES = {Severity.ALARM: "bold red", Severity.CARE: "yellow", Severity.NOTE: "dim"}


@click.command(epilog=example("fairlead top --store embedded:./data"))
@click.option(
    "--interval", type=Duration(), default="2s", show_default=True, help="Between two updates: 500ms, 2s; 200ms to 1h."
)
@accepts_store_options
@json_option
def top(store_options: StoreOptions, interval: timedelta) -> None:
    """Show live what waits, what runs and what needs attention, until q or Ctrl-C. In a pipe, and with --json: once."""
    interval_s = duration_us("interval", interval, low_s=INTERVAL_S_MIN, high_s=INTERVAL_S_MAX) / 1e6
    app = store_options.app()
    if wants_json():
        summary = summarize(app)
        show(_answer(app, summary), lambda: ())
        _refuse_unreadable(summary)
        return
    if not (sys.stdout.isatty() and sys.stdin.isatty()):
        Console(width=None if sys.stdout.isatty() else 120, highlight=False).print(
            _screen(app, summary := summarize(app))
        )
        _refuse_unreadable(summary)
        return
    with suppress(KeyboardInterrupt), _keys() as pressed, Live(screen=True, auto_refresh=False) as live:
        while True:
            live.update(_screen(app, summarize(app)), refresh=True)
            if pressed(interval_s) in ("q", "Q", "\x03", "\x04"):
                return


@contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """Yield a function that waits some seconds for a key, and returns the key, or an empty text."""
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)

    def pressed(seconds: float) -> str:
        return os.read(terminal, 1).decode(errors="replace") if keys.poll(seconds * 1_000) else ""

    keys = select.poll()  # select() refuses descriptors above 1,023.
    keys.register(terminal, select.POLLIN)
    tty.setcbreak(terminal)
    try:
        yield pressed
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _refuse_unreadable(summary: Summary) -> None:
    """End with the exit code of an unusable store if a shard cannot be read."""
    if any(each.error is not None for each in summary.per_shard):
        raise click.exceptions.Exit(STORE_UNUSABLE)


def _screen(app: App, summary: Summary) -> RenderableType:
    recent = by_kind(summary.activity, summary.now_us, slots=RECENT_SLOTS)
    parts: list[RenderableType] = [_head(summary)]
    parts += [Text(printable(each.message), style=_STYLES[each.severity]) for each in summary.concerns]
    per_min = {kind: rollup.completed for kind, rollup in recent.items()}
    parts.append(_kinds(kinds_of(summary.statuses, summary.activity, summary.now_us, summary.externals), per_min))
    waiting, running = _waiting(app, summary), longest_running(summary.activity)[:ROWS]
    parts += [_tenants(waiting, summary.now_us)] if waiting else []
    parts += [_running(running, summary.now_us)] if running else []
    return Group(*parts)


def _head(summary: Summary) -> RenderableType:
    oldest = _for_how_long(summary.oldest_us, summary.now_us, whole=summary.oldest_whole)
    held = "none"
    if summary.blocked_oldest_us is not None:
        more = "" if summary.blocked_whole else "+"
        held = f"{summary.blocked:,}{more}, for {_for_how_long(summary.blocked_oldest_us, summary.now_us)}"
    dead_letters = f"{summary.dead_letters:,}" + ("+" if summary.dead_letters >= COUNTED_MAX else "")
    figures = (
        ("items", f"{summary.waiting:,}"),
        ("oldest waits", oldest),
        ("held back", held),
        ("running", f"{summary.running:,}"),
        ("completed/s", f"{summary.completed_per_s:,.1f}"),
        ("dead letters", dead_letters),
        ("consumers", f"{summary.consumers:,}"),
    )
    cells = [Text.assemble((f"{name} ", "dim"), (figure, "bold")) for name, figure in figures]
    return Columns(cells, padding=(0, 3))


def _for_how_long(waited_us: int | None, now_us: int, *, whole: bool = True) -> str:
    if waited_us is None:
        return "none"
    return ("" if whole else "at least ") + ago(now_us - waited_us, now_us).removesuffix(" ago")


def _kinds(kinds: Iterable[KindSummary], per_min: dict[str, int]) -> Table:
    rows = (
        (
            each.kind,
            each.waiting,
            per_min.get(each.kind, 0),
            each.rollup.retried + each.rollup.lost,
            each.rollup.dead_lettered + each.rollup.dropped,
            each.consumer_count,
            "paused" if each.paused else "no consumer" if each.unserved else "",
        )
        for each in kinds
    )
    return table(
        ("kind", "#items", "#done/min", f"#retried/{MINUTES} min", f"#failed/{MINUTES} min", "#consumers", "state"),
        rows,
    )


def _tenants(waiting: list[TenantWaiting], now_us: int) -> Table:
    rows = ((str(each.tenant), each.total, _since(each.oldest_us, now_us), each.shard) for each in waiting)
    return table(("tenant", "#items", "#oldest waits", "shard"), rows)


def _running(running: list[RunningItem], now_us: int) -> Table:
    rows = (
        (
            each.item.item_id.hex(),
            each.item.kind,
            str(each.item.tenant) + (f" in {each.store}" if each.store else ""),
            _since(each.item.since_us, now_us),
            f"{each.status.host}:{each.status.pid}",
            "" if each.item.progress is None else progress_in_words(each.item.progress),
        )
        for each in running
    )
    return table(("runs", "kind", "tenant", "#since", "worker", "progress"), rows)


def _waiting(app: App, summary: Summary) -> list[TenantWaiting]:
    """Return the tenants with most items, of the readable shards."""
    readable = [each.shard for each in summary.per_shard if each.found is not None]
    most_time = {activity.shard: [tenant for tenant, _ in busiest(activity)] for activity in summary.activity}
    waiting = [
        each
        for name in readable
        for each in waiting_tenants(app.shards[name], more=most_time.get(name, ()), tenants_max=ROWS).tenants
        if each.total
    ]
    return sorted(waiting, key=lambda each: -each.total)[:ROWS]


def _since(time_us: int | None, now_us: int) -> str:
    return "" if time_us is None else ago(min(time_us, now_us), now_us).removesuffix(" ago")


def _answer(app: App, summary: Summary) -> dict[str, Any]:
    return {
        "items": summary.waiting,
        "oldest_waits_s": None if summary.oldest_us is None else summary.oldest_us / 1e6,
        "oldest_at_least": not summary.oldest_whole,
        "held_back": {
            "items": summary.blocked,
            "oldest_waits_s": None if summary.blocked_oldest_us is None else summary.blocked_oldest_us / 1e6,
            "at_least": not summary.blocked_whole,
        },
        "running": summary.running,
        "completed_per_s": round(summary.completed_per_s, 2),
        "dead_letters": summary.dead_letters,
        "consumers": summary.consumers,
        "concerns": [
            {"severity": each.severity.name.lower(), "message": each.message, "do": each.do}
            for each in summary.concerns
        ],
        "kinds": [
            {
                "kind": each.kind,
                "items": each.waiting,
                "consumers": each.consumer_count,
                "paused": each.paused,
                "completed": each.rollup.completed,
                "retried": each.rollup.retried,
                "lost": each.rollup.lost,
                "dead_lettered": each.rollup.dead_lettered,
                "dropped": each.rollup.dropped,
            }
            for each in kinds_of(summary.statuses, summary.activity, summary.now_us, summary.externals)
        ],
        "tenants": [
            {"app": each.tenant.app, "user": each.tenant.user, "shard": each.shard, "items": each.total}
            for each in _waiting(app, summary)
        ],
        "longest_running": [
            {
                "item": each.item.item_id.hex(),
                "kind": each.item.kind,
                "app": each.item.app,
                "user": each.item.user,
                "shard": each.shard,
                "store": each.store,
                "zone": each.zone,
                "since": iso_time(each.item.since_us),
                "host": each.status.host,
                "pid": each.status.pid,
                "progress": progress_answer(each.item.progress),
            }
            for each in longest_running(summary.activity)[:ROWS]
        ],
    }
