"""The configuration: one frozen object that records the source of each value.

A value comes from the highest layer that has it: arguments, then the environment, then `fairlead.toml`, then the
default. In the file a setting stands in its table; in the environment two underscores stand between table and key:

    [consumer]
    lease_ms = 20_000             # FAIRLEAD_CONSUMER__LEASE_MS=20000

All shards come from one layer: the home of a tenant depends on the whole set. `shards = "embedded:./data"` is short for
one shard called `main`.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from msgspec import Meta

from fairlead.actors.execution.deadlines import TRANSACTION_LEASE_US
from fairlead.actors.settings import BadSettings, ConsumerSettings
from fairlead.config_layers import (
    NOTIFY,
    ONLY_SHARD,
    BadConfig,
    ConfigLayer,
    argument_layer,
    environment_layer,
    external_option,
    file_in_force,
    file_layer,
)
from fairlead.zones.errors import BadArgument
from fairlead.zones.external.names import check_store_name
from fairlead.zones.keyspace import PART_COUNT_MAX
from fairlead.zones.layout import check_name
from fairlead.zones.settings import ZoneSettings, check_ranges
from fairlead.zones.shard import DEFAULT_PART_COUNT

ENGINES = ("embedded:", "fdb:", "memory:")
SIGNING_KEY_CHARACTERS_MIN = 16
HIDDEN = "(hidden)"


@dataclass(frozen=True, slots=True)
class Config:
    """The settings of an application.

    Raises:
      BadConfig: a value is out of its range, or two contradict each other.
    """

    shards: Mapping[str, str] = field(default_factory=dict)
    """The stores by name: `embedded:PATH`, `fdb:CLUSTER_FILE` (`fdb:` is the default cluster), `memory:`. The set of
    names decides where tenants live: do not change it once tenants are stored."""

    external: Mapping[str, str] = field(default_factory=dict, repr=False)
    """External stores by name, where queues lie beside a user's data: `postgresql://HOST/DATABASE`. The name, text of 1
    to 16 bytes, is stored with each queue's pointer: do not change it. In the file a store can be a table, with `dsn`
    and `notify`."""

    external_notify: Mapping[str, bool] = field(default_factory=dict)
    """By name, whether an external store notifies consumers of commits: `external.NAME.notify`. False, for a server or
    a pooler without `LISTEN`: a consumer looks at it twenty times a second. Stores that are not named notify. It must
    be the same in all processes of a fleet."""

    part_count: Annotated[int, Meta(ge=1, le=PART_COUNT_MAX)] = DEFAULT_PART_COUNT
    """Parts of the top-level queue of a shard that is made now; one that exists keeps its own."""

    submissions: bool = True
    """Whether a fleet with a signing key loads the handlers that were submitted to it. False: it loads none."""

    signing_key: str = field(default="", repr=False)
    """The key that submitted handlers are signed with; a fleet loads only those that were signed with its own key. 16
    characters or more; empty: handlers cannot be submitted, and none is loaded."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """What `fairlead run` logs."""

    metrics_port: Annotated[int, Meta(ge=0, le=65_535)] = 0
    """The port on which `fairlead run` answers Prometheus. 0: none."""

    metrics_host: str = "127.0.0.1"
    """The address of that port. Its readers see the names of kinds and shards, and counts."""

    consumer: ConsumerSettings = field(default_factory=ConsumerSettings)
    """How a consumer works; see `ConsumerSettings`."""

    zones: ZoneSettings = field(default_factory=ZoneSettings)
    """Times that all processes of an application must agree on; see `ZoneSettings`."""

    sources: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    """Where each value came from, by dotted key."""

    def __post_init__(self) -> None:
        _check_shards(self.shards)
        _check_external(self.external)
        _check_notify(self.external_notify, self.external)
        try:
            check_ranges(self)
        except BadArgument as error:
            raise BadConfig(
                key=error.fields["argument"], value=error.fields["value"], allowed=error.fields["allowed"]
            ) from None
        if self.signing_key and len(self.signing_key) < SIGNING_KEY_CHARACTERS_MIN:
            raise BadConfig(
                key="signing_key", value=HIDDEN, allowed=f"{SIGNING_KEY_CHARACTERS_MIN} characters or more, or empty"
            )
        _check_order(
            "consumer.lease_ms", self.consumer.lease_ms, "zones.max_item_lease_ms", self.zones.max_item_lease_ms
        )
        if self.zones.max_item_lease_ms * 1000 < TRANSACTION_LEASE_US:
            allowed = f"{TRANSACTION_LEASE_US // 1000:,} or more: a transactional handler starts with such a lease"
            raise BadConfig(key="zones.max_item_lease_ms", value=self.zones.max_item_lease_ms, allowed=allowed)
        _check_order(
            "consumer.pointer_lease_ms",
            self.consumer.pointer_lease_ms,
            "zones.max_pointer_lease_ms",
            self.zones.max_pointer_lease_ms,
        )


class Setting(NamedTuple):
    """One line of `fairlead config`. A secret's value is not shown."""

    key: str
    value: Any
    source: str


def load(
    arguments: Mapping[str, Any] | None = None,
    *,
    path: Path | None = None,
    environ: Mapping[str, str] = os.environ,
    directory: Path | None = None,
) -> Config:
    """Return the configuration in force: arguments over environment over file over defaults.

    Args:
      arguments: settings by dotted key, or nested as in the file; a value None counts as absent.
      path: the file; default: what `FAIRLEAD_CONFIG` names, or `fairlead.toml` in the current directory if it exists.
      directory: where relative paths of stores begin if there is no file; default: the current directory. If there is
        a file, all of them begin in the file's directory.

    Raises:
      BadConfig: an unknown key, a wrong type, a value out of range, a contradiction, or no such file.
    """
    path = file_in_force(path, environ)
    base = (directory or Path.cwd()) if path is None else path.absolute().parent
    layers = [argument_layer(arguments or {}, base=base), environment_layer(environ, base=base), file_layer(path)]
    for layer in layers:
        _refuse_unknown(layer)
    values: dict[str, Any] = {}
    notify: dict[str, bool] = {}
    sources = dict.fromkeys(_TYPES, "default")
    for layer in reversed(layers):
        for key, value in layer.values.items():
            if external_option(key) is not None:
                notify[key] = _converted_to(bool, key, value, layer)
                sources[key] = layer.sources[key]
            elif not key.startswith(("shards.", "external.")):
                values[key] = _converted(key, value, layer)
                sources[key] = layer.sources[key]
    shards, shard_sources = next((found for layer in layers if (found := _shards_of(layer))[0]), ({}, {}))
    external, external_sources = next((found for layer in layers if (found := _external_of(layer))[0]), ({}, {}))
    sources |= shard_sources | external_sources
    try:
        return Config(
            shards=shards,
            external=external,
            external_notify={str(external_option(key)): notifies for key, notifies in notify.items()},
            consumer=ConsumerSettings(**_table(values, "consumer")),
            zones=ZoneSettings(**_table(values, "zones")),
            sources=sources,
            **{key: value for key, value in values.items() if "." not in key},
        )
    except BadConfig as error:
        key = str(error.fields.get("key"))
        raise BadConfig(**error.fields, source=sources.get(key, "default")) from None
    except BadSettings as error:
        raise BadConfig(**error.fields) from None
    except BadArgument as error:
        named = str(error.fields["argument"])
        key = f"consumer.{named}" if f"consumer.{named}" in _TYPES else f"zones.{named}"
        raise BadConfig(
            key=key, value=error.fields["value"], allowed=error.fields["allowed"], source=sources[key]
        ) from None


def settings_of(config: Config) -> list[Setting]:
    """Return every value in force with its source, secrets hidden, in the order of the file's tables."""
    rows = [Setting(f"shards.{name}", url, config.sources.get(f"shards.{name}", "argument"))
            for name, url in config.shards.items()]  # fmt: skip
    rows += [
        Setting(f"external.{name}", HIDDEN, config.sources.get(f"external.{name}", "argument"))
        for name in config.external
    ]
    for name, notifies in config.external_notify.items():
        key = f"external.{name}{NOTIFY}"
        rows.append(Setting(key, notifies, config.sources.get(key, "argument")))
    for key in _TYPES:
        value = _value(config, key)
        if key in _SECRETS and value:
            value = HIDDEN
        rows.append(Setting(key, value, config.sources.get(key, "argument")))
    return rows


def arguments_of(config: Config) -> dict[str, Any]:
    """Return every value of a configuration as arguments of `load`, which override every other source."""
    return {
        "shards": dict(config.shards),
        "external": dict(config.external),
        **{f"external.{name}{NOTIFY}": notifies for name, notifies in config.external_notify.items()},
        **{key: _value(config, key) for key in _TYPES},
    }


def named_shards(shards: str | Mapping[str, str] | None) -> dict[str, str] | None:
    """Return shards by name, as they stand in a configuration; a text is the shard `main`.

    Raises:
      BadArgument: they are neither a text nor texts by name, such as a path.
    """
    if shards is None:
        return None
    if not isinstance(shards, str | Mapping):
        allowed = 'a url such as "embedded:PATH", or several by name, such as {"eu": "fdb:CLUSTER_FILE"}'
        raise BadArgument(argument="shards", value=shards, allowed=allowed)
    return {ONLY_SHARD: shards} if isinstance(shards, str) else dict(shards)


_TYPES: dict[str, type] = {
    "part_count": int,
    "submissions": bool,
    "signing_key": str,
    "log_level": str,
    "metrics_port": int,
    "metrics_host": str,
    **{f"consumer.{each.name}": type(each.default) for each in fields(ConsumerSettings)},
    **{f"zones.{each.name}": type(each.default) for each in fields(ZoneSettings)},
}
_SECRETS = {"signing_key"}
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


def _value(config: Config, key: str) -> Any:
    table, _, name = key.rpartition(".")
    return getattr(getattr(config, table) if table else config, name)


def _refuse_unknown(layer: ConfigLayer) -> None:
    for key in layer.values:
        table, dot, name = key.partition(".")
        if key in _TYPES or (table in ("shards", "external") and dot and name):
            continue
        known = [*_TYPES, "shards", "external"]
        by_name = {each.rpartition(".")[2]: each for each in reversed(known)}
        near = get_close_matches(key, known, 1) or [
            by_name[name] for name in get_close_matches(key.rpartition(".")[2], by_name, 1)
        ]
        raise BadConfig(key=key, source=layer.sources[key], nearest=near[0] if near else None, reason="unknown key")


def _converted(key: str, value: Any, layer: ConfigLayer) -> Any:
    return _converted_to(_TYPES[key], key, value, layer)


def _converted_to(wanted: type, key: str, value: Any, layer: ConfigLayer) -> Any:
    if layer.textual and isinstance(value, str) and wanted is not str:
        value = _parsed(value, wanted)
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if type(value) is not wanted:
        shown = HIDDEN if key in _SECRETS else value
        raise BadConfig(key=key, value=shown, source=layer.sources[key], allowed=_WORDS[wanted])
    return value


def _parsed(text: str, wanted: type) -> Any:
    """Return what `text` stands for, or `text` itself if it stands for nothing of that type."""
    if wanted is bool:
        return text.lower() in _TRUE if text.lower() in _TRUE + _FALSE else text
    try:
        return wanted(text)
    except ValueError:
        return text


_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


def _shards_of(layer: ConfigLayer) -> tuple[dict[str, str], dict[str, str]]:
    keys = [key for key in layer.values if key.startswith("shards.")]
    urls = {key.removeprefix("shards."): layer.values[key] for key in keys}
    return urls, {key: layer.sources[key] for key in keys}


def _external_of(layer: ConfigLayer) -> tuple[dict[str, str], dict[str, str]]:
    keys = [key for key in layer.values if key.startswith("external.") and external_option(key) is None]
    dsns = {key.removeprefix("external."): layer.values[key] for key in keys}
    return dsns, {key: layer.sources[key] for key in keys}


def _check_external(external: Mapping[str, str]) -> None:
    """See that external stores have names, and texts that may be those of databases. A wrong one may hold a secret."""
    for name, dsn in external.items():
        key = f"external.{name}"
        try:
            check_store_name(name)
        except BadArgument as error:
            raise BadConfig(key=key, value=name, allowed=error.fields["allowed"]) from None
        if not isinstance(dsn, str) or not (dsn.startswith(("postgresql://", "postgres://")) or "=" in dsn):
            raise BadConfig(key=key, value=HIDDEN, allowed="postgresql://HOST/DATABASE, or 'host=... dbname=...'")


def _check_notify(notify: Mapping[str, bool], external: Mapping[str, str]) -> None:
    for name, notifies in notify.items():
        key = f"external.{name}{NOTIFY}"
        if name not in external:
            raise BadConfig(
                key=key,
                value=notifies,
                allowed=sorted(external),
                reason="there is no such external store, or it has no dsn",
            )
        if not isinstance(notifies, bool):
            raise BadConfig(key=key, value=notifies, allowed=_WORDS[bool])


def _table(values: Mapping[str, Any], table: str) -> dict[str, Any]:
    return {key.partition(".")[2]: value for key, value in values.items() if key.startswith(table + ".")}


def _check_shards(shards: Mapping[str, str]) -> None:
    urls: dict[str, str] = {}
    for name, url in shards.items():
        key = f"shards.{name}"
        try:
            check_name("shard", name)
        except BadArgument as error:
            raise BadConfig(key=key, value=name, allowed=error.fields["allowed"]) from None
        engine, colon, place = url.partition(":") if isinstance(url, str) else ("", "", "")
        if engine + colon not in ENGINES or (engine == "embedded" and not place):
            near = get_close_matches(engine + ":", ENGINES, 1)
            raise BadConfig(
                key=key,
                value=url,
                allowed="embedded:PATH, fdb:CLUSTER_FILE, fdb: or memory:",
                nearest=near[0] if near else None,
            )
        if url in urls and engine != "memory":
            raise BadConfig(key=key, value=url, reason=f"shards {urls[url]} and {name} are the same store")
        urls[url] = name


def _check_order(small: str, small_value: int, large: str, large_value: int) -> None:
    if small_value > large_value:
        raise BadConfig(key=small, value=small_value, allowed=f"at most {large}, which is {large_value:,}")
