"""Locks with intent: how soon a lock is free again after the process that held it was killed (Olive, section 3.2).

    python -m bench.olive locks [--json] [--quick] [--store fdb:CLUSTER_FILE --store fdb:CLUSTER_FILE]

Two shards, embedded ones if no store is named. Each holder gets SIGKILL, and the measuring process asks for the lock at
once.

    worker        a handler holds the lock; its worker, an actor of Ray, is killed, and its manager sees that
    machine       a handler holds the lock; the whole consumer is killed, and another consumer finds its session silent
    process       a process outside of the fleet holds the lock; a consumer finds its session silent
    decided       a transaction across shards has decided, and its coordinator is killed before it applies: the time of
                  the first transaction that meets its lock
    undecided     the coordinator is killed before it decides: the same
    frozen        a mover is killed while its tenant is frozen: the same

The transaction that meets an undecided or a frozen tenant watches it for a second, and then ends what restricts it. So
the bar of these is a second and ten milliseconds.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

from bench import ray_cluster
from bench.fleets import running
from bench.handlers import APP as OTHER_APP
from bench.harness import SPAWN, store_url
from bench.olive_moves import SHARDS, tenant_on
from bench.report import say
from fairlead import App, Config, Job, SpanningTransaction, TenantTransaction, fleet
from fairlead.actors.settings import ConsumerSettings
from fairlead.zones.moving.mover import Mover

APP = "bench.olive_locks:app"
KEY = ("account", 7)
FULL_KILLS, QUICK_KILLS = 5, 1
FULL_MEETINGS, QUICK_MEETINGS = 10, 1
HELD_S_MAX = 60.0
POLL_S = 0.005

app = App()


WORKER, MACHINE, PROCESS, DECIDED, UNDECIDED, FROZEN = (
    "worker", "machine", "process", "decided", "undecided", "frozen",
)  # fmt: skip
BARS_S = {WORKER: 0.5, MACHINE: 7.0, PROCESS: 7.0, DECIDED: 0.01, UNDECIDED: 1.01, FROZEN: 1.01}


@app.handler("hold", timeout=600)
def hold(job: Job) -> None:
    """Hold a lock of the tenant until this process is killed; a later attempt has nothing to do."""
    if job.attempt == 1:
        _hold(job.tenant.user, Path(job.payload))


def _hold(user: str, path: Path) -> None:
    """Hold a lock for ever; write into a file which process does."""
    with app.tenant("olive", user).lock(KEY, wait=0):
        unfinished = path.with_suffix(".unfinished")
        unfinished.write_text(str(os.getpid()), encoding="utf-8")
        unfinished.rename(path)
        while True:
            time.sleep(HELD_S_MAX)


def config_of(stores: Sequence[Path]) -> Config:
    """Return the configuration of both shards."""
    urls = dict(zip(SHARDS, map(store_url, stores), strict=True))
    return Config(shards=urls, consumer=ConsumerSettings(workers=2))


def measure(stores: Sequence[Path], quick: bool) -> list[dict[str, Any]]:
    """Return a row for each way to die."""
    config = config_of(stores)
    app.configure(config)
    kills = QUICK_KILLS if quick else FULL_KILLS
    meetings = QUICK_MEETINGS if quick else FULL_MEETINGS
    try:
        with TemporaryDirectory(dir=stores[0].parent) as directory:
            return [
                _row(WORKER, _of_workers(config, Path(directory), kills)),
                *_of_machines(config, Path(directory), kills),
                _row(DECIDED, [_meeting(config, number, _die_decided) for number in range(meetings)]),
                _row(UNDECIDED, [_meeting(config, number, _die_undecided) for number in range(meetings)]),
                _row(FROZEN, [_meeting_of_a_move(config, number) for number in range(kills)]),
            ]
    finally:
        app.close()


def _row(killed: str, took_s: list[float]) -> dict[str, Any]:
    return {
        "killed": killed,
        "times": len(took_s),
        "median_ms": round(median(took_s) * 1000, 1),
        "longest_ms": round(max(took_s) * 1000, 1),
        "bar_ms": BARS_S[killed] * 1000,
    }


def table_of_locks(rows: list[dict[str, Any]]) -> list[list[str]]:
    """Return the table of the locks."""
    names = ("killed", "times", "median_ms", "longest_ms", "bar_ms")
    return [
        ["killed", "times", "median ms", "longest ms", "bar"],
        *([str(row[name]) for name in names] for row in rows),
    ]


# --- Locks of handlers and processes ---


def _of_workers(config: Config, directory: Path, kills: int) -> list[float]:
    with ray_cluster.cluster() as address, running(config, runtime="ray", address=address, reference=APP):
        took_s = []
        for number in range(kills):
            say(f"kill of a worker, {number + 1} of {kills}")
            user, path = f"worker {number}", directory / f"worker {number}"
            app.tenant("olive", user).enqueue("hold", str(path))
            took_s.append(_free_after_kill(user, path))
        return took_s


def _of_machines(config: Config, directory: Path, kills: int) -> list[dict[str, Any]]:
    """Kill consumers, and processes outside of the fleet, beside a consumer that does not know the handler."""
    took_s: dict[str, list[float]] = {MACHINE: [], PROCESS: []}
    with running(config, runtime="threads", reference=OTHER_APP):
        for number in range(kills):
            for killed, target in ((MACHINE, _consume), (PROCESS, _hold_outside)):
                say(f"kill of a {killed}, {number + 1} of {kills}")
                user, path = f"{killed} {number}", directory / f"{killed} {number}"
                with _process(target, config, user, path):
                    if killed == MACHINE:
                        app.tenant("olive", user).enqueue("hold", str(path))
                    took_s[killed].append(_free_after_kill(user, path))
    return [_row(killed, some) for killed, some in took_s.items()]


def _free_after_kill(user: str, path: Path) -> float:
    """Wait until a process holds the lock, kill the process, and return the seconds until the lock is taken anew."""
    until_s = time.monotonic() + HELD_S_MAX
    while not path.exists():
        if time.monotonic() > until_s:
            raise TimeoutError(f"nobody holds the lock of {user}")
        time.sleep(POLL_S)
    pid = int(path.read_text(encoding="utf-8"))
    os.kill(pid, signal.SIGKILL)
    began_s = time.perf_counter()
    with app.tenant("olive", user).lock(KEY, wait=HELD_S_MAX):
        return time.perf_counter() - began_s


@contextmanager
def _process(target: Callable[..., None], *args: Any) -> Iterator[BaseProcess]:
    process = SPAWN.Process(target=target, args=args)
    process.start()
    try:
        yield process
    finally:
        process.kill()
        process.join()


def _consume(config: Config, user: str, path: Path) -> None:
    app.configure(config)
    fleet.start(app, APP, runtime="threads")
    time.sleep(HELD_S_MAX)


def _hold_outside(config: Config, user: str, path: Path) -> None:
    app.configure(config)
    _hold(user, path)


# --- Locks of transactions across shards, and of moves ---


def _meeting(config: Config, number: int, die: Callable[[Config, int], None]) -> float:
    """Let the coordinator of a transaction die, and return how long the first transaction that meets its lock takes."""
    say(f"{die.__name__}, {number + 1}")
    user = app.tenant(tenant_on(SHARDS[1], number))
    user.transact(_read)
    with _process(die, config, number) as process:
        process.join(HELD_S_MAX)
    return _took_s(user)


def _took_s(user: Any) -> float:
    began_s = time.perf_counter()
    user.transact(_read)
    return time.perf_counter() - began_s


def _read(tr: TenantTransaction) -> None:
    tr.get(KEY)


def _die_decided(config: Config, number: int) -> None:
    _across(config, number, "begin_apply")


def _die_undecided(config: Config, number: int) -> None:
    _across(config, number, "_decide")


def _across(config: Config, number: int, dies_in: str) -> None:
    """Begin a transaction across shards, and die when a method of it is called."""
    app.configure(config)

    def body(tx: SpanningTransaction) -> None:
        for shard in SHARDS:
            tx.on(tenant_on(shard, number)).set(KEY, b"")

    with mock.patch.object(SpanningTransaction, dies_in, _kill_self):
        app.transact(body)


def _kill_self(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _meeting_of_a_move(config: Config, number: int) -> float:
    """Let a mover die while its tenant is frozen, and return how long the first transaction that meets it takes."""
    say(f"frozen, {number + 1}")
    user = app.tenant(tenant_on(SHARDS[0], FULL_MEETINGS + number))
    user.transact(lambda tr: tr.set(KEY, b""))
    with ExitStack() as ending:
        process = ending.enter_context(_process(_move_until_frozen, config))
        app.move(user, to=SHARDS[1])
        process.join(HELD_S_MAX)
    return _took_s(user)


def _move_until_frozen(config: Config) -> None:
    app.configure(config)
    with mock.patch.object(Mover, "_copy_last", _kill_self):
        fleet.start(app, APP, runtime="threads")
        time.sleep(HELD_S_MAX)
