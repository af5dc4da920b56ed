"""pause, resume: holding work back while the fleet runs, and letting it go on."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

import click

from fairlead.cli.output import example, json_option, show
from fairlead.cli.target import Target, target_options
from fairlead.steering import Steering


@dataclass(frozen=True, slots=True)
class Scope:
    """What is to be paused or resumed: exactly one of a tenant, a kind, a shard."""

    tenant: tuple[str, str] | None
    kind: str | None
    shard: str | None

    @property
    def answer(self) -> dict[str, Any]:
        """What is named, for programs."""
        return {key: value for key in ("tenant", "kind", "shard") if (value := getattr(self, key)) is not None}

    @property
    def said(self) -> str:
        """What is named, for people."""
        if self.tenant is not None:
            return f"tenant {'/'.join(self.tenant)}"
        return f"kind {self.kind}" if self.kind is not None else f"shard {self.shard}"


def scope_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `--tenant`, `--kind` and `--shard`, one of which must be said, and pass it a `scope`."""

    @click.option("--tenant", nargs=2, metavar="APP USER", help="A tenant, in all of its zones.")
    @click.option("--kind", metavar="KIND", help="A kind, of all tenants, on every shard.")
    @click.option("--shard", metavar="NAME", help="A whole shard.")
    @target_options
    @wraps(command)
    def with_scope(
        *args: Any, tenant: tuple[str, str] | None, kind: str | None, shard: str | None, target: Target, **options: Any
    ) -> Any:
        scope = Scope(tenant, kind, shard)
        if len(scope.answer) != 1:
            raise click.UsageError(
                "Name one of a tenant, --tenant APP USER; a kind, --kind KIND; a shard, --shard NAME."
            )
        return command(*args, steering=target.app().steering, scope=scope, **options)

    return with_scope


@click.command(epilog=example("fairlead pause --kind receipt --store embedded:./data"))
@scope_options
@json_option
def pause(steering: Steering, scope: Scope) -> None:
    """Start no more items of a tenant, of a kind, or from a shard. What runs goes on; enqueueing goes on."""
    if scope.tenant is not None:
        steering.pause_tenant(*scope.tenant)
    elif scope.kind is not None:
        steering.pause_kind(scope.kind)
    elif scope.shard is not None:
        steering.pause_shard(scope.shard)
    show({"paused": scope.answer}, lambda: [f"paused {scope.said}; what runs already goes on to its end"])


@click.command(epilog=example("fairlead resume --kind receipt --store embedded:./data"))
@scope_options
@json_option
def resume(steering: Steering, scope: Scope) -> None:
    """Let what was paused start again; its queues go on where they were."""
    if scope.tenant is not None:
        steering.resume_tenant(*scope.tenant)
    elif scope.kind is not None:
        steering.resume_kind(scope.kind)
    elif scope.shard is not None:
        steering.resume_shard(scope.shard)
    show({"resumed": scope.answer}, lambda: [f"resumed {scope.said}"])
