"""Workflows: the latency of short ones, the memory of a long one, the replay of one, the cost of a million that sleep.

    python -m bench.workflows latency|checkpoint|replay|sleeping [--json] [--quick]

latency      a workflow of 3 steps on an idle fleet, one at a time: from the call of enqueue to its result in hand, on
             both runtimes
checkpoint   one workflow of 1,000,000 steps, with a checkpoint after every 1,000: the own memory of its process, early
             and at its end
replay       a workflow with 1,000 recorded steps that waits for a signal, beside one without any: from the call of
             signal to the commit of its next step, on threads. The difference is the replay
sleeping     1,000,000 workflows that sleep for 30 days, in one tenant and in as many: the CPU of an idle fleet of
             threads, in percent of a core, beside that with none; and how many pointers it processes per second

In `sleeping` the items are stored as suspended workflows are, with the pointers of the tenants at random times within
the day that they may sleep. Durable, on the embedded engine.
"""

import random
import time
from pathlib import Path
from typing import Any

import fairlead
from bench import harness, ray_cluster
from bench.fleets import RunningFleet, running
from bench.harness import TENANT_APP, config_of
from bench.machine import describe, scratch
from bench.process_cost import cpu_s, memory
from bench.report import Options, latency, parser, plain, say, show
from fairlead import TenantTransaction
from fairlead.workflows.context import WorkflowContext
from fairlead.zones.layout import DEFAULT_ZONE, named_tenant
from fairlead.zones.queue.items import new_item
from fairlead.zones.records import PointerRecord, decode
from fairlead.zones.shard import Shard
from fairlead.zones.top_level import pointers
from fairlead.zones.top_level.process_pointers import WAITING_SLEEP_US_MAX
from fairlead.zones.transaction_runner import Attempt

APP = "bench.workflows:app"
DAY_S = 86_400
SHORT_STEPS = 3
PAUSE_S = 0.05  # Between two workflows, so that the fleet is idle when the next one comes.
RESULT_S_MAX = 30.0
CHECKPOINT_EVERY = 1_000
CHECKPOINTS_S_MAX = 6 * 3600
LOOK_EVERY_S = 0.5
SLEEP_S = 30 * DAY_S
PER_TRANSACTION = 500
SETTLE_S = 3.0
COUNT = ("count",)
RECORDED_STEPS = 1_000
SIGNAL = "go"
POLL_S = 0.0005

app = fairlead.App()


def add_one(tr: TenantTransaction) -> None:
    """Count a step."""
    tr.add(COUNT, 1)


@app.workflow("short", keep_result=DAY_S)
def short(wf: WorkflowContext) -> int:
    """Do three steps."""
    for _ in range(SHORT_STEPS):
        wf.step(add_one)
    return SHORT_STEPS


@app.workflow("long", timeout=CHECKPOINTS_S_MAX)
def long(wf: WorkflowContext, steps: int) -> None:
    """Do many steps, and forget them by checkpoints."""
    done = wf.state or 0
    while done < steps:
        for _ in range(CHECKPOINT_EVERY):
            wf.step(add_one)
        done += CHECKPOINT_EVERY
        wf.checkpoint(done)


@app.workflow("waiting", timeout=DAY_S)
def waiting(wf: WorkflowContext, steps: int, rounds: int) -> None:
    """Do some steps, and then one more after each signal."""
    for _ in range(steps):
        wf.step(add_one)
    for _ in range(rounds):
        wf.wait_for(SIGNAL)
        wf.step(add_one)


@app.workflow("sleeping")
def sleeping(wf: WorkflowContext) -> None:
    """Sleep for a month."""
    wf.sleep(SLEEP_S)


# --- Latency ---


def measure_latency(directory: Path, number: int) -> dict[str, Any]:
    """Return milliseconds from the call of enqueue to the result, by runtime."""
    figures: dict[str, Any] = {}
    with ray_cluster.cluster() as address:
        for runtime in ("threads", "ray"):
            say(f"{number} workflows of {SHORT_STEPS} steps, {runtime}")
            store = directory / f"latency-{runtime}"
            with running(
                config_of(store), runtime=runtime, address=address if runtime == "ray" else None, reference=APP
            ):
                waits_ms = harness.run_in_process(_run_short, store, number)
            figures[runtime] = plain(latency([waits_ms]))
    return figures


def _run_short(store: Path, number: int) -> list[float]:
    tenant = harness.open_app(store).tenant(TENANT_APP, "short")
    waits_ms = []
    for _ in range(number + number // 10):
        began_s = time.perf_counter()
        tenant.enqueue("short").result(timeout=RESULT_S_MAX)
        waits_ms.append((time.perf_counter() - began_s) * 1000)
        time.sleep(PAUSE_S)
    return waits_ms[number // 10 :]  # The first ones open connections.


# --- Memory ---


def measure_checkpoint(directory: Path, steps: int) -> dict[str, Any]:
    """Return the own memory of the process of a long workflow, in MB, after a tenth of its steps and at its end."""
    store = directory / "long"
    tenant = harness.open_app(store).tenant(TENANT_APP, "long")
    with running(config_of(store, workers=1), runtime="threads", reference=APP) as fleet:
        pid = fleet.pids()["consumer"]
        tenant.enqueue("long", {"steps": steps})
        began_s = time.monotonic()
        early_mb = 0.0
        while (done := _count(tenant)) < steps:
            if not early_mb and done >= steps // 10:
                early_mb = memory(pid).anon_mb
                say(f"{done:,} of {steps:,} steps, {early_mb:.1f} MB")
            time.sleep(LOOK_EVERY_S)
        took_s = time.monotonic() - began_s
        last_mb = memory(pid).anon_mb
    return {
        "steps": steps,
        "steps_per_s": round(steps / took_s),
        "early_mb": round(early_mb, 1),
        "last_mb": round(last_mb, 1),
        "growth_mb": round(last_mb - early_mb, 1),
    }


def _count(tenant: Any) -> int:
    value = tenant.transact(lambda tr: tr.get(COUNT, snapshot=True))
    return int.from_bytes(value or b"", "little")


# --- Replay ---


def measure_replay(directory: Path, rounds: int) -> dict[str, Any]:
    """Return milliseconds from a signal to the next step, by how many steps are recorded, and what the replay takes."""
    figures: dict[str, Any] = {}
    for steps in (0, RECORDED_STEPS):
        store = directory / f"replay-{steps}"
        with running(config_of(store, workers=1), runtime="threads", reference=APP):
            waits_ms = harness.run_in_process(_signal, store, steps, rounds)
        figures[f"{steps}_recorded"] = plain(latency([waits_ms]))
    none, many = (figures[f"{steps}_recorded"]["p50_ms"] for steps in (0, RECORDED_STEPS))
    return {**figures, "replay_p50_ms": round(many - none, 2)}


def _signal(store: Path, steps: int, rounds: int) -> list[float]:
    tenant = harness.open_app(store).tenant(TENANT_APP, "waiting")
    handle = tenant.enqueue("waiting", {"steps": steps, "rounds": rounds})
    waits_ms = []
    for done in range(steps, steps + rounds):
        while not (_count(tenant) == done and handle.steps().waits_for_signals):
            time.sleep(PAUSE_S)
        began_s = time.perf_counter()
        handle.signal(SIGNAL)
        while _count(tenant) == done:
            time.sleep(POLL_S)
        waits_ms.append((time.perf_counter() - began_s) * 1000)
    return waits_ms[rounds // 10 :]  # The first ones open connections.


# --- Sleeping ---


def measure_sleeping(directory: Path, count: int, idle_s: float) -> dict[str, Any]:
    """Return the cost of an idle fleet by where the sleeping workflows are."""
    figures: dict[str, Any] = {}
    for where, items, tenants in (("none", 0, 0), ("one_tenant", count, 1), ("as_many_tenants", count, count)):
        store = directory / where
        say(f"{items:,} sleeping workflows in {tenants:,} tenants")
        harness.run_in_process(_store_sleeping, store, items, tenants)
        with running(config_of(store), runtime="threads", reference=APP) as fleet:
            figures[where] = _idle(fleet, idle_s)
    return figures


def _idle(fleet: RunningFleet, idle_s: float) -> dict[str, float]:
    time.sleep(SETTLE_S)
    pid = fleet.pids()["consumer"]
    before_s, found = cpu_s(pid), fleet.counts().get("pointers", 0)
    time.sleep(idle_s)
    return {
        "cpu_percent": round((cpu_s(pid) - before_s) / idle_s * 100, 2),
        "pointers_per_s": round((fleet.counts().get("pointers", 0) - found) / idle_s, 1),
    }


def _store_sleeping(store: Path, items: int, tenants: int) -> None:
    """Store suspended workflows, and pointers that sleep for up to a day."""
    shard = harness.open_app(store).shards["main"]
    drawn = random.Random(0)
    for begin in range(0, items, PER_TRANSACTION):
        numbers = range(begin, min(begin + PER_TRANSACTION, items))
        shard.transact(lambda attempt, numbers=numbers: _suspend(shard, attempt, numbers, tenants, drawn))  # type: ignore[misc]


def _suspend(shard: Shard, attempt: Attempt, numbers: range, tenants: int, drawn: random.Random) -> None:
    item = new_item("sleeping", delay=SLEEP_S)
    for number in numbers:
        tenant = named_tenant(TENANT_APP, f"tenant-{number % tenants:07d}")
        TenantTransaction(shard, tenant, attempt).enqueue_item(item)
        if number < tenants:
            location = shard.layout.location(tenant, DEFAULT_ZONE)
            stored = attempt.tr.get(location.keys.pointer).value
            pointer = None if stored is None else decode(PointerRecord, stored)
            assert pointer is not None
            pointers.move(
                attempt.tr,
                location,
                pointer,
                attempt.now_us + drawn.randrange(WAITING_SLEEP_US_MAX),
                now_us=attempt.now_us,
                bound_us=WAITING_SLEEP_US_MAX,
            )


# --- The command ---


def main() -> None:
    """Measure and print."""
    commands = parser(__doc__)
    commands.add_argument("what", choices=["latency", "checkpoint", "replay", "sleeping"])
    parsed = commands.parse_args()
    quick = parsed.quick
    with scratch() as directory:
        if parsed.what == "latency":
            result = measure_latency(directory, 20 if quick else 300)
        elif parsed.what == "checkpoint":
            result = measure_checkpoint(directory, 10_000 if quick else 1_000_000)
        elif parsed.what == "replay":
            result = measure_replay(directory, 10 if quick else 100)
        else:
            result = measure_sleeping(directory, 2_000 if quick else 1_000_000, 3 if quick else 60)
        result["machine"] = describe(directory)
    show(result, Options(as_json=parsed.json, quick=quick), f"Workflows, {parsed.what}, on the embedded engine")


if __name__ == "__main__":
    main()
