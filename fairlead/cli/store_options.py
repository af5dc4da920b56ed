"""The options that name a command's application and stores.

An application that is named (`--app shop:app`) brings its stores; `--store` names them one by one; otherwise the
environment and fairlead.toml do.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Any, Self

import click

from fairlead.app import App
from fairlead.argument_checks import nearest_kind
from fairlead.config import Config, named_shards
from fairlead.config_layers import APP_VARIABLE, absolute_url
from fairlead.external_queues import ExternalQueues
from fairlead.formatting import printable
from fairlead.loading import load_app
from fairlead.operator import operator_here
from fairlead.queries.per_shard import query_each_shard
from fairlead.tenant_database import TenantDatabase
from fairlead.zones import submitted_handlers
from fairlead.zones.errors import QueueError


class StoreInMemory(QueueError):
    """A `memory:` store is empty when a command starts and gone when it returns, so the command can do nothing with it.

    Do: name a store on disk, `--store embedded:PATH`. Only `fairlead run --runtime threads` and an application's own
    tests can use a store in memory.
    """

    message = "a memory: store ends with the process"


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """The values of the options that name an application and its stores."""

    stores: tuple[str, ...]
    reference: str | None
    config_path: Path | None
    settings: tuple[str, ...] = ()

    def with_settings(self, settings: tuple[str, ...]) -> Self:
        """Return the same options with the settings of `--set`."""
        return replace(self, settings=settings)

    def app(self, *, must_exist: bool = True, may_be_in_memory: bool = False) -> App:
        """Return the configured application; a store is opened at its first use.

        Args:
          must_exist: refuse stores that do not exist instead of making them: a wrong path must not become a store.
          may_be_in_memory: the command itself fills and empties the stores.

        Raises:
          BadConfig, ReferenceNotFound, NoShards, StoreInMemory: see there.
        """
        app = self._named()
        app.configure(app.load_config(_settings(self.settings), path=self.config_path))
        apps: list[App] = click.get_current_context().obj
        apps.append(app)
        app.operator = operator_here("command line")
        app.shards.must_exist = must_exist
        in_memory = [name for name, url in app.shards.urls.items() if url.startswith("memory:")]
        if in_memory and not may_be_in_memory:
            raise StoreInMemory(shards=in_memory)
        return app

    def warn_of_unknown_kind(self, app: App, kind: str) -> None:
        """Warn on standard error if the application of `--app` has no handler of a kind, not even a submitted one."""
        if self.reference is None or not app.registry.handlers or kind in app.registry.handlers:
            return
        seen = query_each_shard(
            app.shards, lambda shard: shard.transact(lambda attempt: submitted_handlers.is_there(attempt.tr, kind))
        )
        if any(each.found for each in seen):
            return
        near = nearest_kind(app.registry, kind)
        hint = f"; nearest: {near}" if near else ""
        click.echo(printable(f"Warning: {self.reference} has no handler of {kind}{hint}"), err=True)

    def config(self) -> Config:
        """Return the configuration that `app` would use; it need not name a store."""
        return self._named().load_config(_settings(self.settings), path=self.config_path)

    def _named(self) -> App:
        if self.reference is None:
            # A typed path begins in the shell's directory, whatever configuration file is read.
            typed = named_shards(_shards(self.stores)) or {}
            return App({name: absolute_url(url, Path.cwd()) for name, url in typed.items()} or None)
        if self.stores:
            raise click.UsageError("--store and --app both name the stores: give one of them.")
        return load_app(self.reference)


def application_in_force(typed: str | None, stores: tuple[str, ...] = ()) -> str | None:
    """Return the typed application, else that of `FAIRLEAD_APP`, unless stores were typed."""
    return typed or (None if stores else os.environ.get(APP_VARIABLE) or None)


def accepts_store_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `--store`, `--app` and `--config`, and pass it a `store_options`."""

    @click.option("--store", "stores", multiple=True, metavar="URL", help=_STORE_HELP)
    @click.option("--app", "reference", metavar="MODULE:ATTRIBUTE", help=_APP_HELP)
    @config_option
    @wraps(command)
    def with_options(
        *args: Any, stores: tuple[str, ...], reference: str | None, config_path: Path | None, **options: Any
    ) -> Any:
        return command(
            *args, store_options=StoreOptions(stores, application_in_force(reference, stores), config_path), **options
        )

    return with_options


def config_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `--config`."""
    return click.option(
        "--config",
        "config_path",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="The configuration file; default: fairlead.toml in the current directory, if there is one.",
    )(command)


def settings_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `--set KEY=VALUE`."""
    return click.option(
        "--set", "settings", multiple=True, metavar="KEY=VALUE", help="A setting, such as consumer.slots=32."
    )(command)


def tenant_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that name a tenant's queue, or local items, and pass it a `database`."""

    @optional_tenant_options
    @wraps(command)
    def with_database(*args: Any, app: App, database: TenantDatabase | ExternalQueues | None, **options: Any) -> Any:
        if database is None:
            raise click.UsageError("Name either a tenant, --tenant APP/USER, or local items, --local KIND.")
        return command(*args, database=database, **options)

    return with_database


def optional_tenant_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of `tenant_options`; pass it the `app`, and a `database` or None without a tenant."""

    @click.option("--tenant", nargs=2, metavar="APP/USER", help="The tenant; also as two words, APP USER.")
    @click.option("--local", metavar="KIND", help="The local items of a kind, those without a tenant.")
    @click.option("--shard", metavar="NAME", help="With --local: the shard, if not the kind's own.")
    @click.option("--external", metavar="NAME", help="The external store in which the tenant's queue lies.")
    @click.option("--zone", default="queue", show_default=True, metavar="NAME", help="The queue zone.")
    @accepts_store_options
    @wraps(command)
    def with_database(
        *args: Any,
        tenant: tuple[str, str] | None,
        local: str | None,
        shard: str | None,
        external: str | None,
        store_options: StoreOptions,
        **options: Any,
    ) -> Any:
        if tenant is not None and local is not None:
            raise click.UsageError("Name either a tenant, --tenant APP/USER, or local items, --local KIND.")
        if shard is not None and local is None:
            raise click.UsageError("--shard goes with --local: a tenant has its own shard.")
        if external is not None and tenant is None:
            raise click.UsageError("--external goes with --tenant: local items lie in a shard.")
        app = store_options.app()
        database: TenantDatabase | ExternalQueues | None = None
        if tenant is not None and external is not None:
            database = app.tenant(*tenant).external(external)
        elif tenant is not None:
            database = app.tenant(*tenant)
        elif local is not None:
            database = app.local(local, shard=shard)
        return command(*args, app=app, database=database, **options)

    return with_database


_APP_HELP = f"The application whose stores to use; default: the value of {APP_VARIABLE}."
_STORE_HELP = "The store: embedded:PATH, or fdb:CLUSTER_FILE; several as NAME=URL, one --store for each."


def _shards(stores: tuple[str, ...]) -> str | dict[str, str] | None:
    if not stores:
        return None
    if len(stores) == 1 and not _is_named(stores[0]):
        return stores[0]
    unnamed = [store for store in stores if not _is_named(store)]
    if unnamed:
        raise click.UsageError(f"Several stores need names: --store NAME={unnamed[0]}")
    urls = dict(store.split("=", 1) for store in stores)
    if len(urls) < len(stores):
        raise click.UsageError("Two stores have the same name.")
    return urls


def _is_named(store: str) -> bool:
    return "=" in store.partition(":")[0]


def _settings(settings: tuple[str, ...]) -> dict[str, str]:
    pairs = [setting.partition("=") for setting in settings]
    for key, equals, _ in pairs:
        if not equals:
            raise click.UsageError(f"A setting is written KEY=VALUE, not {key!r}.")
    return {
        key: absolute_url(value, Path.cwd()) if key.partition(".")[0] == "shards" else value for key, _, value in pairs
    }
