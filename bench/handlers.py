"""The application that the fleets run. Its handlers record their start, which costs one write of 32 bytes.

Each process of a fleet appends to a file of its own beside the store. Times are those of `time.monotonic_ns`, which on
Linux is one clock for all processes of the machine.
"""

import os
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import fairlead
from bench.load.wait_recorder import WaitRecorder, results_tenant

APP = "bench.handlers:app"  # The name of this application, for the processes of actors.
NAP_S = 0.005

app = fairlead.App()
wait_recorder = WaitRecorder(lambda: results_tenant(app))


class Start(NamedTuple):
    """One run of an item, times in nanoseconds. `tag`: a number in the payload, chosen by the enqueuer."""

    tag: int
    sent_ns: int
    started_ns: int
    ended_ns: int


_LINE = struct.Struct("<4q")
_files: dict[Path, int] = {}
_opening = threading.Lock()


@app.handler("noop")
def noop(job: fairlead.Job) -> None:
    """Do nothing."""


@app.handler("note")
def note(job: fairlead.Job) -> None:
    """Record the start, and do nothing."""
    started_ns = time.monotonic_ns()
    _note(job, started_ns, started_ns)


@app.handler("nap")
def nap(job: fairlead.Job) -> None:
    """Sleep 5 ms, and record the begin and the end."""
    started_ns = time.monotonic_ns()
    time.sleep(NAP_S)
    _note(job, started_ns, time.monotonic_ns())


@app.handler("work")
def work(job: fairlead.Job) -> None:
    """Record the wait of the item, and sleep for the time in the payload. See `bench.load`."""
    order = job.payload
    wait_recorder.note(order["run"], time.time_ns() // 1000 - order["due_us"])
    time.sleep(order["work_ms"] / 1000)


def work_payload(run: int, *, due_us: int, work_ms: int) -> dict[str, int | bytes]:
    """Return the payload of an item that was due at that time, some 200 bytes packed."""
    return {"run": run, "due_us": due_us, "work_ms": work_ms, "pad": bytes(165)}


def payload(tag: int = 0) -> dict[str, int | bytes]:
    """Return the payload of an item that is sent now, some 200 bytes packed."""
    return {"tag": tag, "pad": bytes(170), "sent_ns": time.monotonic_ns()}


def starts(store: Path) -> list[Start]:
    """Return the starts that the handlers of all processes on `store` have recorded so far, in no order."""
    return [start for path in _directory(store).glob("starts-*") for start in _read(path)]


def _read(path: Path) -> Iterator[Start]:
    written = path.read_bytes()
    whole = len(written) - len(written) % _LINE.size
    return (Start(*fields) for fields in _LINE.iter_unpack(written[:whole]))


def _note(job: fairlead.Job, started_ns: int, ended_ns: int) -> None:
    line = _LINE.pack(job.payload["tag"], job.payload["sent_ns"], started_ns, ended_ns)
    os.write(_file(), line)


def _file() -> int:
    """Return this process's file beside the store that the application is configured for."""
    directory = _directory(Path(app.config.shards["main"].partition(":")[2]))
    file = _files.get(directory)
    if file is None:
        with _opening:
            if directory not in _files:
                directory.mkdir(exist_ok=True)
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
                _files[directory] = os.open(directory / f"starts-{os.getpid()}", flags, 0o644)
            file = _files[directory]
    return file


def _directory(store: Path) -> Path:
    return store.with_name(store.name + ".starts")
