"""Whether a ready watch means a change of its key, or was lost: refused or dropped by the engine."""

from typing import Any


def watch_error(watch: Any, errors: tuple[type[Exception], ...]) -> Exception | None:
    """Return the error of a ready watch; None if its key has changed. `errors`: the engine's classes of errors."""
    try:
        watch.wait()
    except errors as error:
        return error
    return None
