"""The application of these tests. Its stores and settings are the test's; its handlers leave traces in the store."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

import fairlead
from fairlead.zones.engines.embedded.stored_log import StoredLog

app = fairlead.App()


def note(path: str, *words: object) -> None:
    """Append a line to a file that many processes share; a short append is whole or not there."""
    line = " ".join(map(str, words)) + "\n"
    fd = os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o644)
    try:
        os.write(fd, line.encode())
    finally:
        os.close(fd)


def tell(job: fairlead.Job, what: str) -> None:
    """Count `what` in the tenant's database, apart from the completion."""
    job.transact(lambda tr: tr.add((what, job.payload["number"]), 1))


@app.handler("transactional", transactional=True)
def transactional(job: fairlead.Job, tr: fairlead.TenantTransaction) -> None:
    time.sleep(job.payload.get("takes_ms", 0) / 1000)
    tr.add(("done", job.payload["number"]), 1)


@app.handler("plain", retry=fairlead.Retry(backoff=0.1))
def plain(job: fairlead.Job) -> None:
    time.sleep(job.payload.get("takes_ms", 0) / 1000)
    tell(job, "ran")


@app.handler("async")
async def asynchronous(job: fairlead.Job) -> None:
    await asyncio.sleep(job.payload.get("takes_ms", 0) / 1000)
    tell(job, "ran")


@app.handler("fenced")
def fenced(job: fairlead.Job) -> None:
    """Complete the item in a transaction of the handler's own."""

    def body(tr: fairlead.TenantTransaction) -> None:
        tr.add(("done", job.payload["number"]), 1)
        job.complete_in(tr)

    job.transact(body)


@app.handler("contested", timeout=60)
def contested(job: fairlead.Job) -> None:
    """Complete as `fenced` does: in the first attempt once a file appears, in the second once the first was refused."""
    path = Path(job.payload["path"])
    note(str(path), "begun", os.getpid())
    first = len(path.read_text().splitlines()) == 1
    while not (path.with_suffix(".told").exists() if first else "refused" in path.read_text()):
        time.sleep(0.01)
    try:
        fenced(job)
    except fairlead.LeaseLost:
        note(str(path), "refused", os.getpid())
        raise
    note(str(path), "completed", os.getpid())


@app.handler("stopped_in_commit")
def stopped_in_commit(job: fairlead.Job) -> None:
    """In the first attempt of all, let the next commit of this process stop it when it has the store's write lock."""
    path = Path(job.payload["path"])
    if path.exists():
        return
    path.touch()
    begin = StoredLog.begin

    def begin_and_stop(log: StoredLog, txn: Any) -> None:
        StoredLog.begin = begin  # type: ignore[method-assign]
        begin(log, txn)
        os.kill(os.getpid(), signal.SIGSTOP)

    StoredLog.begin = begin_and_stop  # type: ignore[assignment,method-assign]


@app.handler("noted", retry=fairlead.Retry(backoff=0.1))
def noted(job: fairlead.Job) -> None:
    """Note when the item began and ended, by the machine's one monotonic clock."""
    path = job.payload["path"]
    note(path, "begin", job.id.hex(), time.monotonic_ns(), os.getpid())
    time.sleep(job.payload.get("takes_ms", 0) / 1000)
    note(path, "end", job.id.hex(), time.monotonic_ns(), os.getpid())


@app.handler("until_told", timeout=600)
def until_told(job: fairlead.Job) -> None:
    """Run until a file appears, or until the item is lost."""
    path = Path(job.payload["path"])
    note(f"{path}.begun", job.payload["number"], os.getpid())
    while not path.exists() and not job.cancelled:
        time.sleep(0.01)
    note(f"{path}.ended", job.payload["number"], "cancelled" if job.cancelled else "told")


@app.handler("locking", timeout=600)
def locking(job: fairlead.Job) -> None:
    """Hold a lock of the tenant for ever; a later attempt has nothing to do."""
    if job.attempt > 1:
        return
    with app.tenant(job.tenant).lock(("account", 7), wait=0):
        note(job.payload["path"], "held", os.getpid())
        while not job.cancelled:
            time.sleep(0.01)


@app.handler("told", timeout=600, keep_result=600)
async def told(job: fairlead.Job) -> dict[str, int]:
    """Tell how far it is, as a coroutine, until a file appears; return what was asked for."""
    path = Path(job.payload["path"])
    job.progress(1, 2, "half")
    note(f"{path}.begun", job.payload["number"])
    try:
        while not path.exists():  # noqa: ASYNC110, ASYNC240 - another process makes the file
            await asyncio.sleep(0.01)
    except asyncio.CancelledError:
        note(f"{path}.ended", "cancelled")
        raise
    return {"number": job.payload["number"]}


@app.handler("deaf", timeout=1, retry=fairlead.Retry(attempts=1))
def deaf(job: fairlead.Job) -> None:
    """Never listen."""
    note(job.payload["path"], os.getpid())
    time.sleep(3600)


@app.workflow("stepwise")
def stepwise(wf: fairlead.WorkflowContext) -> None:
    """Do a step, and another in the replay behind a wait; then wait for longer than any test."""
    wf.step(lambda tr: tr.add(("steps",), 1), name="first")
    wf.sleep(0.1)
    wf.step(lambda tr: tr.add(("steps",), 1), name="second")
    wf.sleep(3600)


@app.handler("killer")
def killer(job: fairlead.Job) -> None:
    """Take the worker down, as an item does that eats all memory."""
    os.kill(os.getpid(), 9)


@app.handler("killer_when_told", timeout=600)
def killer_when_told(job: fairlead.Job) -> None:
    """Take the worker down; in a later attempt, once a file appears."""
    path = Path(job.payload["path"])
    note(f"{path}.begun", job.payload["number"], os.getpid())
    while job.attempt >= job.payload["waits_from"] and not path.exists():
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)


@app.handler("printing")
def printing(job: fairlead.Job) -> None:
    print("printed by a handler:", job.payload["number"], flush=True)  # noqa: T201 - what is tested is where it goes


def payload(number: int, **more: Any) -> dict[str, Any]:
    """Return a payload for any of these kinds."""
    return {"number": number, **more}
