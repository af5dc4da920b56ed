"""Calls, answers and states as text."""

from __future__ import annotations

from enum import Enum
from typing import Any

ID_DIGITS = 6  # Digits of an id's hexadecimal form.


def render(value: Any) -> str:
    """Return a value as text: ids by their first digits, fields by name unless they have their default."""
    if isinstance(value, bytes):
        return value.hex()[:ID_DIGITS]
    if isinstance(value, Enum):
        return str(value.value)
    defaults = getattr(value, "_field_defaults", None)
    if defaults is not None:
        fields = (
            f"{name}={render(each)}"
            for name, each in value._asdict().items()
            if name not in defaults or each != defaults[name]
        )
        return f"{type(value).__name__}({', '.join(fields)})"
    if isinstance(value, tuple):
        return f"[{', '.join(map(render, value))}]"
    return str(value)
