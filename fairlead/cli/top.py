"""top: an application at a glance, again and again, in a terminal."""

import os
import select
import sys
import termios
import tty
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import click
from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fairlead.app import App
from fairlead.cli.errors import STORE_UNUSABLE
from fairlead.cli.output import example, json_option, show, table, wants_json
from fairlead.cli.store_options import Target, target_options
from fairlead.formatting import ago, plain, when
from fairlead.queries.activity import LATELY_SLOTS, RunningOn, busiest, by_kind, longest_running
from fairlead.queries.health import Weight
from fairlead.queries.kinds import KindSeen, kinds_of
from fairlead.queries.queues import TenantWaiting, waiting_tenants
from fairlead.queries.summary import Glance, glance
from fairlead.status import COUNTED_MAX
from fairlead.views import progress_in_words
from fairlead.zones.reporting.rollups import KEPT_SLOTS, SLOT_US

ROWS = 10  # Of tenants, and of items that run.
MINUTES = KEPT_SLOTS * SLOT_US // 60_000_000
_STYLES = {Weight.ALARM: "bold red", Weight.CARE: "yellow", Weight.NOTE: "dim"}


@click.command(epilog=example("fairlead top --store embedded:./data"))
@click.option(
    "--interval", type=click.FloatRange(0.2, 3600), default=2.0, show_default=True, help="Seconds between looks."
)
@target_options
@json_option
def top(target: Target, interval: float) -> None:
    """Show what waits, runs, and needs attention, live, until q or Ctrl-C. In a pipe, and with --json: one look."""
    app = target.app()
    if wants_json():
        seen = glance(app)
        show(_answer(app, seen), lambda: ())
        _refuse_unreadable(seen)
        return
    if not (sys.stdout.isatty() and sys.stdin.isatty()):
        Console(width=None if sys.stdout.isatty() else 120, highlight=False).print(_screen(app, seen := glance(app)))
        _refuse_unreadable(seen)
        return
    with suppress(KeyboardInterrupt), _keys() as pressed, Live(screen=True, auto_refresh=False) as live:
        while True:
            live.update(_screen(app, glance(app)), refresh=True)
            if pressed(interval) in ("q", "Q", "\x03", "\x04"):
                return


@contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """Yield what waits for a key for so many seconds, and returns it; nothing if none was pressed."""
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


def _refuse_unreadable(seen: Glance) -> None:
    """End with the code of a store that cannot be used if there is one among those that were shown."""
    if any(each.error is not None for each in seen.per_shard):
        raise click.exceptions.Exit(STORE_UNUSABLE)


def _screen(app: App, seen: Glance) -> RenderableType:
    lately = by_kind(seen.work, seen.now_us, slots=LATELY_SLOTS)
    parts: list[RenderableType] = [_head(seen)]
    parts += [Text(plain(each.said), style=_STYLES[each.weight]) for each in seen.concerns]
    per_min = {kind: tally.completed for kind, tally in lately.items()}
    parts.append(_kinds(kinds_of(seen.statuses, seen.work, seen.now_us), per_min))
    waiting, running = _waiting(app, seen), longest_running(seen.work)[:ROWS]
    parts += [_tenants(waiting, seen.now_us)] if waiting else []
    parts += [_running(running, seen.now_us)] if running else []
    return Group(*parts)


def _head(seen: Glance) -> RenderableType:
    oldest = _for_how_long(seen.oldest_us, seen.now_us, whole=seen.oldest_whole)
    held = "none"
    if seen.held_oldest_us is not None:
        more = "" if seen.held_whole else "+"
        held = f"{seen.held:,}{more}, for {_for_how_long(seen.held_oldest_us, seen.now_us)}"
    buried = f"{seen.dead_letters:,}" + ("+" if seen.dead_letters >= COUNTED_MAX else "")
    figures = (
        ("items", f"{seen.waiting:,}"),
        ("oldest waits", oldest),
        ("held back", held),
        ("running", f"{seen.running:,}"),
        ("completed/s", f"{seen.completed_per_s:,.1f}"),
        ("buried", buried),
        ("consumers", f"{seen.consumers:,}"),
    )
    said = [Text.assemble((f"{name} ", "dim"), (figure, "bold")) for name, figure in figures]
    return Columns(said, padding=(0, 3))


def _for_how_long(waited_us: int | None, now_us: int, *, whole: bool = True) -> str:
    if waited_us is None:
        return "none"
    return ("" if whole else "at least ") + ago(now_us - waited_us, now_us).removesuffix(" ago")


def _kinds(kinds: Iterable[KindSeen], per_min: dict[str, int]) -> Table:
    rows = (
        (
            each.kind,
            each.waiting,
            per_min.get(each.kind, 0),
            each.tally.retried + each.tally.lost,
            each.tally.buried + each.tally.dropped,
            each.served,
            "paused" if each.paused else "nobody knows it" if each.unserved else "",
        )
        for each in kinds
    )
    return table(
        ("kind", "#items", "#done/min", f"#retried/{MINUTES} min", f"#failed/{MINUTES} min", "#consumers", "state"),
        rows,
    )


def _tenants(waiting: list[TenantWaiting], now_us: int) -> Table:
    rows = ((_owner(*each.tenant), each.total, _since(each.oldest_us, now_us), each.shard) for each in waiting)
    return table(("tenant", "#items", "#oldest waits", "shard"), rows)


def _running(running: list[RunningOn], now_us: int) -> Table:
    rows = (
        (
            each.item.item_id.hex(),
            each.item.kind,
            _owner(*each.item.tenant),
            _since(each.item.since_us, now_us),
            f"{each.sheet.host}:{each.sheet.pid}",
            "" if each.item.progress is None else progress_in_words(each.item.progress),
        )
        for each in running
    )
    return table(("runs", "kind", "tenant", "#since", "worker", "progress"), rows)


def _waiting(app: App, seen: Glance) -> list[TenantWaiting]:
    """Return the tenants with most items, of the shards that can be read."""
    readable = [each.shard for each in seen.per_shard if each.found is not None]
    most_time = {work.shard: [tenant for tenant, _ in busiest(work)] for work in seen.work}
    waiting = [
        each
        for name in readable
        for each in waiting_tenants(app.shards[name], more=most_time.get(name, ()), tenants_max=ROWS).tenants
        if each.total
    ]
    return sorted(waiting, key=lambda each: -each.total)[:ROWS]


def _owner(app: str, user: str) -> str:
    return f"{app}/{user}" if app else f"(local) {user}"


def _since(time_us: int | None, now_us: int) -> str:
    return "" if time_us is None else ago(min(time_us, now_us), now_us).removesuffix(" ago")


def _answer(app: App, seen: Glance) -> dict[str, Any]:
    return {
        "items": seen.waiting,
        "oldest_waits_s": None if seen.oldest_us is None else seen.oldest_us / 1e6,
        "oldest_at_least": not seen.oldest_whole,
        "held_back": {
            "items": seen.held,
            "oldest_waits_s": None if seen.held_oldest_us is None else seen.held_oldest_us / 1e6,
            "at_least": not seen.held_whole,
        },
        "running": seen.running,
        "completed_per_s": round(seen.completed_per_s, 2),
        "buried": seen.dead_letters,
        "consumers": seen.consumers,
        "concerns": [{"weight": each.weight.name.lower(), "said": each.said, "do": each.do} for each in seen.concerns],
        "kinds": [
            {
                "kind": each.kind,
                "items": each.waiting,
                "consumers": each.served,
                "paused": each.paused,
                "completed": each.tally.completed,
                "retried": each.tally.retried,
                "lost": each.tally.lost,
                "buried": each.tally.buried,
                "dropped": each.tally.dropped,
            }
            for each in kinds_of(seen.statuses, seen.work, seen.now_us)
        ],
        "tenants": [
            {"app": each.tenant.app, "user": each.tenant.user, "shard": each.shard, "items": each.total}
            for each in _waiting(app, seen)
        ],
        "longest_running": [
            {
                "item": each.item.item_id.hex(),
                "kind": each.item.kind,
                "app": each.item.app,
                "user": each.item.user,
                "since": when(each.item.since_us),
                "host": each.sheet.host,
                "pid": each.sheet.pid,
            }
            for each in longest_running(seen.work)[:ROWS]
        ],
    }
