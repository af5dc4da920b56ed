"""How often a process of a fleet collects cyclic garbage."""

import gc

import psutil

COLLECT_AFTER = 20_000  # Objects created and not freed: some megabytes of small objects.
GROWN_BYTES = 64_000_000  # Large objects: after this much growth the process collects anyway.

_grown_from: list[int] = []  # Bytes in memory after the last collection; empty in a process that collects as usual.


def collect_rarely() -> None:
    """Collect cyclic garbage rarely from now on, and never among the objects that exist now.

    Imported modules stay for good, and a batch creates thousands of objects that it frees itself. A collection after
    every 700 new objects, Python's default, would take a tenth of the process's time. Call it only in processes of a
    fleet: other processes belong to the user.
    """
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER)
    _grown_from[:] = [_resident_bytes()]


def collect_if_grown() -> None:
    """Collect now, if this process collects rarely and has grown: a cycle may hold a large buffer.

    Called once a second. The limit rises with the memory that remains after a collection, so that a process that has
    grown for good does not collect every time.
    """
    if _grown_from and _resident_bytes() > _grown_from[0] + GROWN_BYTES:
        gc.collect()
        _grown_from[0] = _resident_bytes()


def _resident_bytes() -> int:
    """Return the memory that this process has now. A new `Process` each time: the process may have forked."""
    return psutil.Process().memory_info().rss
