"""Values as text and as JSON: times, payloads, other values from a store.

Control characters of stored values are spelled out, so that a payload cannot change the terminal that shows it.
"""

import base64
import json
import math
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from fairlead.actors.runtime.safe_text import escaped

PAYLOAD_CHARACTERS = 60  # Of a payload in a table.
DEPTH_MAX = 100  # Of nested lists and dicts: a payload may be nested deeper than Python's stack.
TOO_DEEP = "nested too deep to show"


def printable(text: str) -> str:
    """Return `text` with control characters spelled out, except line ends."""
    return escaped(text, keep="\n")


def json_ready(value: Any, depth_max: int = DEPTH_MAX) -> Any:
    """Return `value` in JSON's types: bytes as base64; infinities, and values that are nested too deep, as text."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict | list | tuple) and not depth_max:
        return TOO_DEEP
    if isinstance(value, dict):
        return {
            key if isinstance(key, str) else str(key): json_ready(each, depth_max - 1) for key, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [json_ready(each, depth_max - 1) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def payload_text(payload: Any) -> str:
    """Return a payload in one line, cut to `PAYLOAD_CHARACTERS`."""
    text = json.dumps(json_ready(payload), ensure_ascii=False)
    return text if len(text) <= PAYLOAD_CHARACTERS else f"{text[:PAYLOAD_CHARACTERS]}..."


def iso_time(time_us: int) -> str:
    """Return a time as ISO 8601, UTC, to the millisecond; a time beyond the calendar as a number of microseconds."""
    try:
        return datetime.fromtimestamp(time_us / 1e6, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return str(time_us)


def ago(time_us: int, now_us: int) -> str:
    """Return how long ago a time was, or in how long it comes, in the unit that suits it."""
    seconds = abs(now_us - time_us) / 1e6
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        if seconds >= size:
            text = f"{seconds / size:.1f} {unit}"
            break
    else:
        text = f"{seconds * 1000:.0f} ms"
    return f"{text} ago" if time_us <= now_us else f"in {text}"


def size(byte_count: int) -> str:
    """Return a number of bytes in the unit that suits it."""
    for unit_bytes, unit in ((1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "kB")):
        if byte_count >= unit_bytes:
            return f"{byte_count / unit_bytes:,.1f} {unit}"
    return f"{byte_count} bytes"


def span(duration_us: float) -> str:
    """Return a duration in the unit that suits it."""
    seconds = abs(duration_us) / 1e6
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"
