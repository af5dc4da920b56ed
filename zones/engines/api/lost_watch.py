"""Whether a watch that is ready tells of a change, or was lost: refused, or given up by the engine."""

from typing import Any


def watch_error(watch: Any, errors: tuple[type[Exception], ...]) -> Exception | None:
    """Return the error of a watch that is ready; None: its key has changed. `errors`: what the engine raises."""
    try:
        watch.wait()
    except errors as error:
        return error
    return None
