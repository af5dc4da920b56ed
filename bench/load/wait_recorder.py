"""The waits that the handlers of all processes of a fleet record: a histogram per process and run.

The histograms are stored in the store under test, as data of a tenant of their own. So this works on every machine and
engine, and needs no other service. It costs one small commit per process in half a second.
"""

import os
import threading
from collections.abc import Callable

from hdrh.histogram import HdrHistogram

from bench.load.histograms import histogram, merged, record
from fairlead import App, TenantTransaction
from fairlead.tenant_database import TenantDatabase

FLUSH_EVERY_S = 0.5
UNMEASURED = 0  # The run of items that are not measured.


class WaitRecorder:
    """The waits of one process. A thread stores them, from the first start on.

    Each process writes its own keys, with the whole histogram each time, so that no wait counts twice.
    """

    def __init__(self, database: Callable[[], TenantDatabase]) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._changed = threading.Event()
        self._histograms: dict[int, HdrHistogram] = {}
        self._name = f"{os.uname().nodename}-{os.getpid()}-{os.urandom(4).hex()}"

    def note(self, run: int, waited_us: int) -> None:
        """Count the start of an item and its wait. Run 0 is not counted."""
        if run == UNMEASURED:
            return
        with self._lock:
            if not self._histograms:
                threading.Thread(target=self._flush_loop, name="tally", daemon=True).start()
            if run not in self._histograms:
                self._histograms[run] = histogram()
            record(self._histograms[run], waited_us)
        self._changed.set()

    def flush(self) -> None:
        """Store the counts so far."""
        with self._lock:
            packed = {run: each.encode() for run, each in self._histograms.items()}

        def body(tr: TenantTransaction) -> None:
            for run, each in packed.items():
                tr.set(("starts", run, self._name), each)

        self._database().transact(body)

    def _flush_loop(self) -> None:
        pause = threading.Event()
        while self._changed.wait():
            pause.wait(FLUSH_EVERY_S)
            self._changed.clear()
            self.flush()


def results_tenant(app: App) -> TenantDatabase:
    """Return the tenant that holds the histograms of an application."""
    return app.tenant("bench", "tally")


def recorded_waits(app: App, run: int) -> HdrHistogram:
    """Return the stored waits of all items of a run."""
    return results_tenant(app).transact(lambda tr: merged(value for _, value in tr.get_range(("starts", run))))
