"""Handlers that are Ray remote functions. An application of its own, because it imports Ray."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import fairlead.actors.runtime.ray_host

# isort: split
import ray

import fairlead
from tests.acceptance.loads import lines_of
from tests.acceptance.shop import note

app = fairlead.App()


@ray.remote(num_cpus=0)
def work(job: fairlead.Job) -> None:
    note(job.payload["path"], "ran", job.payload["number"], os.getpid(), job.attempt)


@ray.remote(num_cpus=0)
def fail(job: fairlead.Job) -> None:
    raise KeyError(job.payload["number"])


@ray.remote(num_cpus=0)
def linger(job: fairlead.Job) -> None:
    note(job.payload["path"], "begun", os.getpid())
    time.sleep(600)
    note(job.payload["path"], "ended", os.getpid())


@ray.remote(num_cpus=0)
def tell(job: fairlead.Job) -> dict[str, int]:
    """Tell how far it is until a file appears, and return what was asked for."""
    path = Path(job.payload["path"])
    note(job.payload["path"] + ".begun", os.getpid())
    number = 0
    while not path.exists():
        number += 1
        job.progress(number, note="waiting")
        time.sleep(0.01)
    return {"told": number}


@ray.remote(num_cpus=0)
def die(job: fairlead.Job) -> None:
    note(job.payload["path"], "begun", os.getpid())
    os.kill(os.getpid(), 9)


@ray.remote(num_cpus=0)
def complete(job: fairlead.Job) -> None:
    """Complete the item in a transaction of the task's own, on a store that the task opens."""
    database = fairlead.App(job.payload["store"]).tenant(*job.tenant)

    def body(tr: fairlead.TenantTransaction) -> None:
        tr.add(("done", job.payload["number"]), 1)
        job.complete_in(tr)

    database.transact(body)


@ray.remote(num_cpus=0)
def complete_and_go_on(job: fairlead.Job) -> None:
    """Complete the item as `complete` does, and do more for longer than a worker takes to see that it is gone."""
    fairlead.App(job.payload["store"]).tenant(*job.tenant).transact(job.complete_in)
    time.sleep(4)
    note(job.payload["path"], "ended", os.getpid())


def register(kind: str, function: Any, **options: Any) -> None:
    app.handler(kind, **options)(function)


register("work", work)
register("options", work.options(num_cpus=0, name="named"))
register("fail", fail, permanent=(KeyError,))
register("linger", linger, timeout=1, retry=fairlead.Retry(attempts=1))
register("linger_on", linger)
register("tell", tell, keep_result=600)
register("die", die, retry=fairlead.Retry(attempts=2, backoff=0.1))
register("complete", complete)
register("complete_and_go_on", complete_and_go_on)


def ended(path: Path) -> list[list[str]]:
    """Return the lines that the tasks have noted."""
    return [line.split() for line in lines_of(path)]
