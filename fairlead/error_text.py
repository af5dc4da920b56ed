"""Errors in words: what happened, to what, and what to do. The command line and the dashboard show them."""

import inspect
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from fairlead.zones.engines import StoreUnavailable

TRACEBACK = "traceback"  # A field of many lines, shown below the sentence.


def sentence_of(error: Exception) -> str:
    """Return an error in one line: its message, then its fields."""
    fields = (f"{name}: {_short(name, value)}" for name, value in fields_of(error).items() if name != TRACEBACK)
    return ", ".join([message_of(error), *fields])


def message_of(error: Exception) -> str:
    """Return the constant part of an error."""
    return str(getattr(error, "message", None) or getattr(error, "description", None) or error)


def fields_of(error: Exception) -> dict[str, Any]:
    """Return the variable part of an error, without its remedy and fields that its message repeats."""
    fields = getattr(error, "fields", {})
    repeated = ("remedy", "reason") if isinstance(error, StoreUnavailable) else ("remedy",)
    return {name: value for name, value in fields.items() if value is not None and name not in repeated}


def remedy_of(error: Exception) -> str:
    """Return what to do: the error's own remedy, or else the one in the docstring of its class."""
    own = getattr(error, "remedy", "") or getattr(error, "fields", {}).get("remedy", "")
    if own:
        return str(own)
    _, found, advice = (inspect.getdoc(type(error)) or "").partition("\nDo: ")
    return " ".join(advice.partition("\n\n")[0].split()) if found else ""


def _short(name: str, value: object) -> str:
    """Return a field's value, cut to 300 characters. A caller's text is quoted: '32' is not 32."""
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return " ".join(str(each) for each in value)
    if isinstance(value, timedelta):
        return f"{value.total_seconds():,.15g} s"
    text = value if isinstance(value, str) and value and name != "value" else repr(value)
    return text if len(text) <= 300 else f"{text[:300]}..."
