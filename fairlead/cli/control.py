"""pause, resume, limit, set-weight: control of a running fleet."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any

import click

from fairlead.cli.output import example, json_option, show
from fairlead.cli.store_options import StoreOptions, accepts_store_options
from fairlead.control import Control
from fairlead.explanation import limit_in_words
from fairlead.zones.layout import Tenant
from fairlead.zones.records import KindPolicy


@dataclass(frozen=True, slots=True)
class Scope:
    """What a command pauses or resumes: exactly one of a tenant, a kind, a shard."""

    tenant: tuple[str, str] | None
    kind: str | None
    shard: str | None

    @property
    def answer(self) -> dict[str, Any]:
        """The scope as JSON shows it."""
        return {key: value for key in ("tenant", "kind", "shard") if (value := getattr(self, key)) is not None}

    @property
    def description(self) -> str:
        """The scope as text shows it."""
        if self.tenant is not None:
            return f"tenant {Tenant(*self.tenant)}"
        return f"kind {self.kind}" if self.kind is not None else f"shard {self.shard}"

    def pause_and_resume(self, control: Control) -> tuple[Callable[[], None], Callable[[], None]]:
        """Return two functions: one pauses the scope, the other resumes it."""
        if self.tenant is not None:
            return partial(control.pause_tenant, *self.tenant), partial(control.resume_tenant, *self.tenant)
        if self.kind is not None:
            return partial(control.pause_kind, self.kind), partial(control.resume_kind, self.kind)
        assert self.shard is not None
        return partial(control.pause_shard, self.shard), partial(control.resume_shard, self.shard)


def scope_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `--tenant`, `--kind` and `--shard`, exactly one of which is required, and pass it a `scope`."""

    @click.option(
        "--tenant", nargs=2, metavar="APP/USER", help="A tenant, in all of its zones; also as two words, APP USER."
    )
    @click.option("--kind", metavar="KIND", help="A kind, for all tenants, on every shard.")
    @click.option("--shard", metavar="NAME", help="A whole shard.")
    @accepts_store_options
    @wraps(command)
    def with_scope(
        *args: Any,
        tenant: tuple[str, str] | None,
        kind: str | None,
        shard: str | None,
        store_options: StoreOptions,
        **options: Any,
    ) -> Any:
        scope = Scope(tenant, kind, shard)
        if len(scope.answer) != 1:
            raise click.UsageError(
                "Name one of a tenant, --tenant APP/USER; a kind, --kind KIND; a shard, --shard NAME."
            )
        app = store_options.app()
        if kind is not None:
            store_options.warn_of_unknown_kind(app, kind)
        return command(*args, control=app.control, scope=scope, **options)

    return with_scope


@click.command(epilog=example("fairlead pause --kind receipt --store embedded:./data"))
@scope_options
@json_option
def pause(control: Control, scope: Scope) -> None:
    """Start no more items of a tenant, a kind or a shard. Running items continue; enqueueing continues."""
    pause, _ = scope.pause_and_resume(control)
    pause()
    show(
        {"paused": scope.answer}, lambda: [f"paused {scope.description}; items that already run continue to their end"]
    )


@click.command(epilog=example("fairlead resume --kind receipt --store embedded:./data"))
@scope_options
@json_option
def resume(control: Control, scope: Scope) -> None:
    """Let a paused tenant, kind or shard start items again. Its queues continue where they stopped."""
    _, resume = scope.pause_and_resume(control)
    resume()
    show({"resumed": scope.answer}, lambda: [f"resumed {scope.description}"])


@click.command(epilog=example("fairlead limit --kind receipt --max-running 3 --store embedded:./data"))
@click.option(
    "--tenant", nargs=2, metavar="APP/USER", help="A tenant, for all of its items; also as two words, APP USER."
)
@click.option("--kind", metavar="KIND", help="A kind, for all tenants, in the whole fleet.")
@click.option("--max-running", type=int, metavar="N", help="At most N run at once.")
@click.option("--per-second", type=float, metavar="R", help="At most R start per second.")
@click.option(
    "--burst", type=int, metavar="N", help="With --per-second: how many may start at once after an idle time."
)
@click.option("--off", is_flag=True, help="Remove the limit.")
@accepts_store_options
@json_option
def limit(
    store_options: StoreOptions,
    tenant: tuple[str, str] | None,
    kind: str | None,
    max_running: int | None,
    per_second: float | None,
    burst: int | None,
    off: bool,
) -> None:
    """Limit how many items of a tenant or a kind run at once and start per second. Limits not named are removed."""
    scope = Scope(tenant, kind, None)
    if len(scope.answer) != 1:
        raise click.UsageError("Name a tenant, --tenant APP/USER, or a kind, --kind KIND.")
    if off == (max_running is not None or per_second is not None):
        raise click.UsageError("Give --max-running N or --per-second R or both; or --off to remove the limit.")
    if burst is not None and per_second is None:
        raise click.UsageError("--burst goes with --per-second.")
    app = store_options.app()
    control = app.control
    if kind is not None:
        store_options.warn_of_unknown_kind(app, kind)
    if tenant is not None:
        control.limit_tenant(*tenant, max_running=max_running, per_s=per_second, burst=burst)
    elif kind is not None:
        control.limit_kind(kind, max_running=max_running, per_s=per_second, burst=burst)
    limits = {"max_running": max_running, "per_s": per_second, "burst": burst}
    show(
        {"limited": {**scope.answer, **limits}},
        lambda: [f"{scope.description}: {limit_in_words(KindPolicy(max_running=max_running, per_s=per_second))}"],
    )


@click.command("set-weight", epilog=example("fairlead set-weight 3 --tenant shop/alice --store embedded:./data"))
@click.argument("weight", type=float)
@click.option("--tenant", nargs=2, metavar="APP/USER", required=True, help="The tenant; also as two words, APP USER.")
@accepts_store_options
@json_option
def set_weight(store_options: StoreOptions, weight: float, tenant: tuple[str, str]) -> None:
    """Set a tenant's share: WEIGHT times the items of a tenant with weight 1, while both have items waiting."""
    store_options.app().control.set_weight(*tenant, weight=weight)
    show({"tenant": tenant, "weight": weight}, lambda: [f"tenant {Tenant(*tenant)} has weight {weight:g}"])
