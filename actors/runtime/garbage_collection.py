"""How often a process that is a fleet's own looks for cycles among its objects."""

import gc

import psutil

COLLECT_AFTER = 20_000  # Objects made and not freed: some megabytes, if they are small.
GROWN_BYTES = 64_000_000  # If they are large: by so much the process may grow before it looks for cycles anyway.

_grown_from: list[int] = []  # Bytes in memory after the last collection; empty in a process that collects as usual.


def collect_rarely() -> None:
    """Look for cycles rarely from now on, and not among what there is already.

    What was imported stays for good, and a batch makes thousands of objects that go with it: looking through both for
    cycles after every 700 would take a tenth of the process's time. A user's own process is the user's to set.
    """
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER)
    _grown_from[:] = [_resident_bytes()]


def collect_if_grown() -> None:
    """Look for cycles now, if this process collects rarely and has grown since: a cycle may hold a large buffer.

    Called once a second. The floor rises with what stays: a process that has grown for good does not collect for ever.
    """
    if _grown_from and _resident_bytes() > _grown_from[0] + GROWN_BYTES:
        gc.collect()
        _grown_from[0] = _resident_bytes()


def _resident_bytes() -> int:
    """Return the memory that this process has now. A new `Process` each time: the process may have forked."""
    return psutil.Process().memory_info().rss
