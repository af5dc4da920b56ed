"""The layers of settings: arguments, the environment, the file. Each is a flat table.

Only the form is checked here. `config` checks the keys and their values.
"""

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fairlead.zones.errors import QueueError

FILE_NAME = "fairlead.toml"
PREFIX = "FAIRLEAD_"
FILE_VARIABLE = "FAIRLEAD_CONFIG"  # names the file, so it is no setting itself
TOKEN_VARIABLE = "FAIRLEAD_DASHBOARD_TOKEN"  # a secret of one command; other commands must not keep it
APP_VARIABLE = "FAIRLEAD_APP"  # names the application that the command line works on
ONLY_SHARD = "main"
_EXTERNAL = "external."
NOTIFY = ".notify"  # How the key of an external store's option ends; the DSN stands under the store's name itself.


class BadConfig(QueueError):
    """The configuration cannot be used: an unknown key, a value out of range, or values that contradict each other.

    Do: correct the `key` in its `source`; `nearest` is the known key that is spelled most alike, `allowed` what it may
    hold. `fairlead config` prints what is in force and where each value came from.
    """

    message = "the configuration cannot be used"


class ConfigLayer(NamedTuple):
    """The settings of one source: dotted keys (`consumer.lease_ms`) with their values and places.

    `textual`: a value may be text that stands for its type, `"20000"` for 20000.
    """

    values: dict[str, Any]
    sources: dict[str, str]
    textual: bool


def argument_layer(arguments: Mapping[str, Any], *, base: Path) -> ConfigLayer:
    """Return the layer of the caller's arguments: nested tables as in the file, or dotted keys. None means not passed.

    Args:
      base: the directory that relative paths of stores begin in; also in `environment_layer`.
    """
    rows = ((key, value, "argument") for key, value in _flat(arguments) if value is not None)
    return _layer(rows, base=base, textual=True)


def environment_layer(environ: Mapping[str, str], *, base: Path) -> ConfigLayer:
    """Return the layer of the variables `FAIRLEAD_...`; two underscores stand between a table and its key."""
    rows = (
        (variable.removeprefix(PREFIX).lower().replace("__", ".", 1), value, variable)
        for variable, value in sorted(environ.items())
        if variable.startswith(PREFIX) and variable not in (FILE_VARIABLE, TOKEN_VARIABLE, APP_VARIABLE)
    )
    return _layer(rows, base=base, textual=True)


def file_in_force(path: Path | None, environ: Mapping[str, str]) -> Path | None:
    """Return `path`, else the file that `FAIRLEAD_CONFIG` names, else `fairlead.toml` here if there is one."""
    if path is None and environ.get(FILE_VARIABLE):
        return Path(environ[FILE_VARIABLE])
    return Path(FILE_NAME) if path is None and Path(FILE_NAME).exists() else path


def file_layer(path: Path | None) -> ConfigLayer:
    """Return the layer of the file at `path`; None: an empty layer.

    Raises:
      BadConfig: the file is missing, cannot be read, or is not TOML.
    """
    if path is None:
        return ConfigLayer({}, {}, textual=False)
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:  # ValueError: no text, no TOML, no path
        raise BadConfig(source=str(path), reason=str(error)) from None
    rows = ((key, value, str(path)) for key, value in _flat(tables))
    return _layer(rows, base=path.absolute().parent, textual=False)


def absolute_url(url: Any, base: Path) -> Any:
    """Return a store's url with its path, if it has one, made absolute: a worker may run in another directory.

    Raises:
      BadConfig: there can be no such path.
    """
    if not isinstance(url, str):
        return url
    engine, colon, place = url.partition(":")
    if engine not in ("embedded", "fdb") or not place:
        return url
    try:
        return f"{engine}{colon}{(base / Path(place).expanduser()).resolve()}"
    except (ValueError, RuntimeError) as error:  # a NUL; the home of an unknown user; a loop of links
        raise BadConfig(key="shards", value=url, reason=str(error)) from None


def _layer(rows: Iterable[tuple[str, Any, str]], *, base: Path, textual: bool) -> ConfigLayer:
    layer = ConfigLayer({}, {}, textual)
    for found, value, source in _with_options(rows):
        key = f"shards.{ONLY_SHARD}" if found == "shards" else found
        layer.values[key] = absolute_url(value, base) if key.startswith("shards.") else value
        layer.sources[key] = source
    return layer


def _with_options(rows: Iterable[tuple[str, Any, str]]) -> Iterator[tuple[str, Any, str]]:
    """Yield the rows; those of an external store that is a table, with a row for each of its keys.

    Raises:
      BadConfig: an external store has no such option.
    """
    for key, value, source in rows:
        if key.startswith(_EXTERNAL) and isinstance(value, Mapping):
            unknown = sorted(set(value) - {"dsn", NOTIFY[1:]})
            if unknown:
                allowed = "dsn and notify"
                raise BadConfig(key=f"{key}.{unknown[0]}", source=source, allowed=allowed, reason="unknown key")
            yield from ((key if name == "dsn" else f"{key}.{name}", each, source) for name, each in value.items())
        elif key.startswith(_EXTERNAL) and key.endswith("__notify"):  # In the environment.
            yield key.removesuffix("__notify") + NOTIFY, value, source
        else:
            yield key, value, source


def external_option(key: str) -> str | None:
    """Return the name of the external store whose option `notify` a dotted key is; None: it is none."""
    is_option = key.startswith(_EXTERNAL) and key.endswith(NOTIFY)
    return key.removeprefix(_EXTERNAL).removesuffix(NOTIFY) if is_option else None


def _flat(tables: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in tables.items():
        if isinstance(value, Mapping):
            yield from ((f"{key}.{inner}", each) for inner, each in value.items())
        else:
            yield key, value
