"""The job that every system runs, and the record of its start.

A job is plain data of about 200 bytes, so that every system can store it in its own way. `run` writes one record of 32
bytes into a file of the worker's process, and then sleeps for the job's time, which is 0 in most measures. The record
costs the same in every system: one `write` without a sync.

Times are those of `time.monotonic_ns`, which on Linux is one clock for all processes of the machine.
"""

import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from bench.peers.round_context import CONTEXT

Job = dict[str, Any]  # tag, due_ns, nap_ms: int; tenant, pad: str

STEPS = 16  # Of a workflow, in the measure `steps`.
PAD = "x" * 110  # So that a job has some 200 bytes as JSON.

_NOTE = struct.Struct("<4q")
_files: dict[int, int] = {}  # A worker may fork after its first job; each process has a file of its own.


class Start(NamedTuple):
    """One run of a job. `due_ns`: the time to send it; `pid`: the process that ran it."""

    tag: int
    due_ns: int
    started_ns: int
    pid: int


def new_job(*, tag: int = 0, due_ns: int | None = None, nap_ms: int = 0, tenant: int = 0) -> Job:
    """Return a job that is due now, or at `due_ns`."""
    due_ns = time.monotonic_ns() if due_ns is None else due_ns
    return {"tag": tag, "due_ns": due_ns, "nap_ms": nap_ms, "tenant": f"tenant-{tenant:05d}", "pad": PAD}


def run(job: Job) -> None:
    """Record the start, then sleep for `nap_ms`. Every system calls this for every job."""
    started_ns = time.monotonic_ns()
    os.write(_file(), _NOTE.pack(job["tag"], job["due_ns"], started_ns, os.getpid()))
    if job["nap_ms"]:
        time.sleep(job["nap_ms"] / 1000)


def count() -> int:
    """Return the number of starts in this round, with any tag."""
    return sum(path.stat().st_size for path in CONTEXT.notes.iterdir()) // _NOTE.size


def starts(tag: int) -> list[Start]:
    """Return the starts with `tag` in this round, in the order of their times."""
    found = [start for path in CONTEXT.notes.iterdir() for start in _read(path) if start.tag == tag]
    return sorted(found, key=lambda start: start.started_ns)


def _read(path: Path) -> Iterator[Start]:
    written = path.read_bytes()
    whole = len(written) - len(written) % _NOTE.size
    return (Start(*fields) for fields in _NOTE.iter_unpack(written[:whole]))


def _file() -> int:
    pid = os.getpid()
    if pid not in _files:
        # If two threads open the file, two descriptors append to it, which is correct, too.
        _files[pid] = os.open(CONTEXT.notes / str(pid), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    return _files[pid]
