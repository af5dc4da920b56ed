"""The run: start a fleet, store the files, kill a worker half-way, and check the result."""

import os
import shutil
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fairlead import fleet
from fairlead.config import Config
from fairlead.demo.application import app, store_file
from fairlead.demo.corpus import SourceFile, read_library
from fairlead.demo.result_check import DemoResult, check_index
from fairlead.status import read_status
from fairlead.zones.errors import QueueError

MARK = "fairlead-demo"  # A file in the demo's store. The demo deletes and reads no directory without it.
REFERENCE = "fairlead.demo.application:app"
TIMEOUT_US = 180_000_000
POLL_US = 50_000

OnEvent = Callable[[str], None]
Progress = Callable[[int, int | None], None]


class NotADemoStore(QueueError):
    """The demo did not make the file or directory at this path, so it neither replaces nor searches it.

    Do: name another directory with `--data`, or remove this one yourself.
    """

    message = "the demo did not make this directory"


@dataclass(frozen=True, slots=True)
class DemoRun:
    """The numbers of a run. `seconds`: from the first file stored to the last one indexed."""

    enqueued: int
    completed: int
    seconds: float
    killed_pid: int | None
    result: DemoResult


def configure(store: Path) -> None:
    """Make `store` the demo's only shard."""
    app.configure(Config(shards={"main": f"embedded:{store}"}))


def require_index(store: Path) -> None:
    """Raise NotADemoStore unless `store` is one that the demo made."""
    if store.is_symlink() or not (store / MARK).is_file():
        raise NotADemoStore(path=str(store))


def _make_store(store: Path) -> None:
    """Open a new store, marked as the demo's, in place of an earlier one."""
    configure(store)
    if os.path.lexists(store):
        require_index(store)
        try:
            shutil.rmtree(store)
        except OSError as error:
            raise NotADemoStore(path=str(store), reason=str(error)) from None
    _ = app.shards["main"]  # Opens it; the engine raises if the path is wrong.
    (store / MARK).touch()


class Storing:
    """Stores files in a thread. `stored` counts those whose transaction has committed."""

    def __init__(self, files: Sequence[SourceFile]) -> None:
        self.stored = 0
        self.error: BaseException | None = None
        self._files = files
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            for file in self._files:
                store_file(file)
                self.stored += 1
        except BaseException as error:  # noqa: BLE001 - it ends the demo, which raises it
            self.error = error


def run_demo(store: Path, *, runtime: str, on_event: OnEvent, progress: Progress) -> DemoRun:
    """Index the standard library in a new store, kill a worker half-way, and check the result.

    Raises:
      NotADemoStore: `store` exists, and the demo did not make it.
    """
    _make_store(store)
    files = list(read_library())
    tenants = len({file.tenant for file in files})
    on_event(
        f"{len(files):,} files of {tenants:,} tenants: each is stored, and its indexing enqueued, in one transaction"
    )
    running = fleet.start(app, REFERENCE, runtime=runtime, show_output=False)
    try:
        begun_us = app.clock.now_us()
        storing = Storing(files)
        killed = _watch(running, storing, len(files), on_event=on_event, progress=progress)
        seconds = (app.clock.now_us() - begun_us) / 1e6
    finally:
        running.stop(drain=1)
    if storing.error is not None:
        raise storing.error
    result = check_index(files)
    return DemoRun(storing.stored, len(files) - result.lost, seconds, killed, result)


def _watch(running: fleet.Fleet, storing: Storing, total: int, *, on_event: OnEvent, progress: Progress) -> int | None:
    """Wait until the store shows that all is indexed; kill a worker half-way, if workers have processes."""
    killed: int | None = None
    until_us = app.clock.now_us() + TIMEOUT_US
    while app.clock.now_us() < until_us and storing.error is None:
        stored = storing.stored
        indexed = stored - read_status(app.shards["main"], "").depth.get("index", 0)
        progress(max(0, indexed), total)
        if indexed == total:
            break
        if killed is None and indexed >= total // 2 and isinstance(running, fleet.RayFleet):
            killed = _kill_worker(running)
            on_event(f"killed worker process {killed}: the items that it held, and those sent to it, run again at once")
        app.clock.sleep_us(POLL_US)
    return killed


def _kill_worker(running: fleet.RayFleet) -> int | None:
    workers = running.pids()["worker"]
    if not workers:
        return None
    os.kill(workers[0], signal.SIGKILL)
    return workers[0]
