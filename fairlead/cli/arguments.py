"""Types of command-line arguments: durations, times, payloads, ids of items, tenants."""

import json
import math
import re
import sys
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click

from fairlead.handle import NoResult
from fairlead.zones.errors import ItemGone, NotADeadLetter
from fairlead.zones.layout import split_tenant

T = TypeVar("T")

_UNITS_MS = {"ms": 1, "": 1_000, "s": 1_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"\s*([+-]?\d+(?:\.\d+)?)\s*([a-z]*)\s*")
_NUMBER = re.compile(r"-?[0-9]{1,150}")
_ID = re.compile(r"[0-9a-fA-F]{32}")


class Duration(click.ParamType[timedelta]):
    """A duration such as 90, 90s, 250ms, 5min, 2h or 3d. The function that takes it checks its range."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """Return the duration."""
        if isinstance(value, timedelta):
            return value
        found = _DURATION.fullmatch(value)
        try:
            if found is not None and found[2] in _UNITS_MS:
                return timedelta(milliseconds=float(found[1]) * _UNITS_MS[found[2]])
        except OverflowError:
            pass
        self.fail(f"{value!r} is no duration. Write 90, 90s, 250ms, 5min, 2h or 3d.", param, ctx)


class Before(click.ParamType[int]):
    """A past moment: a duration ago such as 2h, or ISO 8601 with its offset; becomes microseconds."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return microseconds since the epoch; for a duration its negative, see `moment_us`."""
        if isinstance(value, int):
            return value
        if _DURATION.fullmatch(value):
            return -(Duration().convert(value, param, ctx) // timedelta(microseconds=1))
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            moment = None
        if moment is None or moment.tzinfo is None:
            self.fail(f"{value!r} is no time. Write 2h for two hours ago, or 2026-11-22T08:30:00+00:00.", param, ctx)
        return round(moment.timestamp() * 1_000_000)


def moment_us(before: int, now_us: int) -> int:
    """Return the moment that `Before` stands for, microseconds since the epoch."""
    return now_us + before if before <= 0 else before


class Payload(click.ParamType[Any]):
    """A payload as JSON: the text itself, @FILE, or - for standard input."""

    name = "json"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the data."""
        try:
            return json.loads(self._text(value), parse_constant=_refuse_constant, parse_float=_finite)
        except (OSError, UnicodeDecodeError) as error:
            self.fail(f"{value} cannot be read: {error}", param, ctx)
        except (ValueError, RecursionError) as error:
            self.fail(
                f"it is not data: {error}. Write JSON in single quotes, such as '{{\"order\": 7}}', or @FILE, or -.",
                param,
                ctx,
            )

    def _text(self, value: str) -> str:
        if value == "-":
            return sys.stdin.read()
        return Path(value[1:]).read_text(encoding="utf-8") if value.startswith("@") else value


class ItemKey(click.ParamType[tuple[str, str | int]]):
    """A key of an item, NAME=VALUE. A value of digits is a number; a text of digits is typed as JSON, '"7"'."""

    name = "key"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str | int]:
        """Return the name and the value."""
        if isinstance(value, tuple):
            return value
        name, equals, typed = value.partition("=")
        if not (name and equals and typed):
            self.fail(f"{value!r} is no key. Write NAME=VALUE, such as order=7.", param, ctx)
        if _NUMBER.fullmatch(typed):
            return name, int(typed)
        if typed.startswith('"'):
            try:
                text = json.loads(typed)
            except ValueError as error:
                self.fail(f"{typed} is no text of JSON: {error}.", param, ctx)
            return name, str(text)
        return name, typed


def with_id(typed: str, operation: Callable[[str | bytes], T]) -> T:
    """Run `operation` on the item that was typed: an id of 32 hexadecimal digits as printed, or the item's name.

    A text that may be both is tried as an id first.

    Raises:
      ItemGone, NoResult, NotADeadLetter: there is no such item.
    """
    first, *second = ids_typed(typed)
    try:
        return operation(first)
    except (ItemGone, NoResult, NotADeadLetter) as not_there:
        for other in second:
            try:
                return operation(other)
            except (ItemGone, NoResult, NotADeadLetter):
                raise not_there from None
        raise


def ids_typed(typed: str) -> list[str | bytes]:
    """Return the ids that a typed text may mean: 32 hexadecimal digits as printed, and the name of an item."""
    return [bytes.fromhex(typed), typed] if _ID.fullmatch(typed) else [typed]


def tenants_spelled_out(typed: Sequence[str]) -> list[str]:
    """Return the typed arguments with each `--tenant APP/USER` as `--tenant APP USER`.

    A slash in the name of an app is typed twice, as tenants are printed.

    Raises:
      click.UsageError: the USER that follows an APP is missing, or looks like an option.
    """
    done: list[str] = []
    rest = list(typed)
    while rest:
        word = rest.pop(0)
        option, equals, name = word.partition("=")
        if word == "--" or option != "--tenant" or not (equals or rest):
            done.append(word)
            if word == "--":
                break
            continue
        if not equals:
            name = rest.pop(0)
        app, *users = split_tenant(name)
        if not users and rest and not rest[0].startswith("--"):
            users = [rest.pop(0)]
        if not users:
            found = f"not the option {rest[0]}" if rest else "nothing follows"
            raise click.UsageError(
                f"--tenant names an app and a user, --tenant APP USER or --tenant APP/USER: after {name!r} the user is"
                f" missing; {found}."
            )
        done += ["--tenant", app, *users]
    return done + rest


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number of JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is too large a number")
    return number
