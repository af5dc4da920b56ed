"""An application in whose processes one loop dies once: that which a file beside the store names, once there is one.

Imported by actors' processes alone: it changes the product there.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import fairlead.actors.execution.completer
import fairlead.actors.execution.slots
import fairlead.actors.scanner
from tests.acceptance.shop import app

__all__ = ["app"]

PLACES: dict[str, tuple[Any, str]] = {
    "scanner": (fairlead.actors.scanner.Scanner, "_scan_shard"),
    "deadlines": (fairlead.actors.execution.slots, "due_work"),
    "completer": (fairlead.actors.execution.completer.Completer, "_settle"),
}


def order() -> Path:
    """Return the file that names the loop; Ray's processes know nothing of the test but its stores."""
    return Path(app.config.shards["main"].removeprefix("embedded:")).with_name("loop-to-die")


def _dying(name: str, function: Any) -> Any:
    def dies_once(*args: Any, **how: Any) -> Any:
        with contextlib.suppress(FileNotFoundError):
            if order().read_text() == name:
                order().unlink()
                raise SystemExit("a loop dies")
        return function(*args, **how)

    return dies_once


for each, (owner, attribute) in PLACES.items():
    setattr(owner, attribute, _dying(each, getattr(owner, attribute)))
