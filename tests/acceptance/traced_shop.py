"""A shop whose handlers tell where they are, and a web server of one request: run as a program, it places an order."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

import fairlead.actors.runtime.ray_host

# isort: split
import ray
from opentelemetry import trace

import fairlead
from fairlead.telemetry import otel_sdk
from fairlead.telemetry.otel_environment import requested_exporters
from tests.acceptance.shop import note

app = fairlead.App()
log = logging.getLogger("shop")


class Noting(logging.Handler):
    """Notes of every record, in the file that it names, which job it says it comes from."""

    def emit(self, record: logging.LogRecord) -> None:
        ids = vars(record)
        note(
            record.getMessage(),
            ids["job_kind"],
            ids["job_attempt"],
            ids["job_trace_id"],
            ids["job_span_id"],
            ids["job_item_id"],
        )


log.addHandler(Noting())


@app.handler("charge", retry=fairlead.Retry(backoff=0.01))
def charge(job: fairlead.Job) -> None:
    """Fail at first; then enqueue one item of every other kind, in ways that differ."""
    log.warning(job.payload["notes"])
    if job.attempt == 1:
        raise ConnectionError(f"the bank does not answer to {job.payload['card']}")
    database = app.tenant(*job.tenant)
    database.enqueue("async", job.payload)
    job.transact(lambda tr: tr.enqueue("remote", job.payload))
    database.enqueue("transactional", job.payload)


@app.handler("async")
async def asynchronous(job: fairlead.Job) -> None:
    log.warning(job.payload["notes"])


@app.handler("transactional", transactional=True)
def transactional(job: fairlead.Job, tr: fairlead.TenantTransaction) -> None:
    tr.enqueue("last", job.payload)
    log.warning(job.payload["notes"])


@app.handler("last")
def last(job: fairlead.Job) -> None:
    log.warning(job.payload["notes"])


@app.handler("asked")
def asked_the_bank(job: fairlead.Job) -> None:
    log.warning(job.payload["notes"])


@ray.remote(num_cpus=0)
def in_a_task(job: fairlead.Job) -> None:
    assert Noting in map(type, log.handlers)  # The function travels by value; to name the class imports this module.
    log.warning(job.payload["notes"])
    with trace.get_tracer("shop").start_as_current_span("ask the bank"):
        note(job.payload["notes"] + ".pid", os.getpid())
        fairlead.App(job.payload["store"]).tenant(*job.tenant).enqueue("asked", job.payload)


app.handler("remote")(in_a_task)


def place_order(store: str, notes: str) -> None:
    """Do what a web server does for one request."""
    shop = fairlead.App(store)
    with trace.get_tracer("shop").start_as_current_span("POST /orders"):
        shop.tenant("shop", "alice").enqueue("charge", {"card": "a stolen card", "notes": notes, "store": store})
    shop.close()


if __name__ == "__main__":
    otel_sdk.install(requested_exporters())
    place_order(sys.argv[1], str(Path(sys.argv[2])))
    otel_sdk.flush_spans()
