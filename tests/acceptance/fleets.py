"""Fleets under test: consumers on the Ray cluster of the tests, `fairlead run` in processes, and their end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import IO, Any
from uuid import uuid4

from fairlead import App, Config
from fairlead.actors.runtime.actor_identity import Identity
from fairlead.actors.settings import ConsumerSettings
from fairlead.fleet import AppOpening
from fairlead.zones.settings import ZoneSettings

ROOT = Path(__file__).resolve().parents[2]
SHOP = "tests.acceptance.shop:app"
SOAK = "FAIRLEAD_SOAK_S"  # The environment's name for how long the long form of a soak takes.
PATIENCE_S = 120.0  # On two busy cores a fleet on Ray takes a minute to start.

# Pointers of empty zones go soon, so that a test can see that nothing is left.
ZONES = ZoneSettings(min_inactive_ms=500, max_sleep_ms=2_000)

ROLES = ("scanner", "manager", "worker")  # And a coordinator, where one consumer at a time goes in order.


def config(directory: Path, *, shards: Sequence[str] = ("main",), url: str | None = None, **consumer: Any) -> Config:
    """Return a configuration with embedded shards in a directory, or one shard of another `url`, and short leases."""
    settings = ConsumerSettings(**{"lease_ms": 2_000, "slots": 8, "pause_recheck_ms": 500, **consumer})
    urls = {name: f"embedded:{directory / name}" if url is None else url for name in shards}
    return Config(shards=urls, consumer=settings, zones=ZONES)


def eventually(
    what: Callable[[], object], *, within_s: float = PATIENCE_S, otherwise: Callable[[], object] = lambda: "never so"
) -> None:
    """Wait until `what` is true; fail if it does not become so, with what `otherwise` says then."""
    until = time.monotonic() + within_s
    while not what():
        assert time.monotonic() < until, otherwise()
        time.sleep(0.02)


@contextlib.contextmanager
def consumer(chosen: Config, *, reference: str = SHOP, drain_ms: int = 1_000) -> Iterator[Any]:
    """Run a consumer of Ray actors on the cluster of the tests; drain it at the end."""
    from fairlead.actors.runtime import ray_host

    identity = Identity(os.urandom(8), "test", os.getpid(), time.time_ns() // 1000)
    running = ray_host.RayConsumer(AppOpening(reference, str(ROOT), chosen), identity)
    try:
        yield running
    finally:
        running.stop(drain=drain_ms / 1000)


def is_whole(running: Any, chosen: Config) -> bool:
    """Whether every actor of a consumer answers."""
    found = {role: len(pids) for role, pids in running.pids().items() if role != "isolated"}  # there if need be
    settings = chosen.consumer
    coordinators = {"coordinator": 1} if settings.selection == "in_order" else {}
    return found == {**coordinators, "scanner": 1, "manager": settings.managers, "worker": settings.workers}


def kill_one(running: Any, chosen: Config, role: str, random: Random) -> float:
    """Kill a random process of a role, wait until it is back, and return the seconds that took."""
    victim = random.choice(running.pids()[role])
    begun = time.monotonic()
    os.kill(victim, signal.SIGKILL)
    eventually(
        lambda: is_whole(running, chosen) and victim not in running.pids()[role],
        otherwise=lambda: f"the {role} that was killed did not come back: {running.pids()}",
    )
    return time.monotonic() - begun


@contextlib.contextmanager
def paused(pid: int) -> Iterator[None]:
    """Keep a process stopped (SIGSTOP) for a while; one that dies meanwhile stays dead."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


class Machine:
    """Processes of one imaginary machine: all that `run` started, and all that those started in turn.

    They are told apart by a word in their environment, which children inherit: Ray's daemons leave the group.
    """

    def __init__(self, directory: Path) -> None:
        self.mark = f"MACHINE_OF_A_TEST={uuid4().hex}"
        self.directory = directory
        self._started: list[subprocess.Popen[str]] = []

    def run(self, *typed: str, log: IO[str] | None = None, **how: Any) -> subprocess.Popen[str]:
        """Start a `fairlead` command on this machine, in the directory."""
        return self.start([sys.executable, "-m", "fairlead", *typed], log=log, **how)

    def start(
        self, command: Sequence[str], *, log: IO[str] | None = None, env: Mapping[str, str] | None = None, **how: Any
    ) -> subprocess.Popen[str]:
        """Start a command on this machine, in the directory; what it starts in turn belongs to the machine too."""
        name, _, value = self.mark.partition("=")
        ours = {key: each for key, each in os.environ.items() if key != SOAK}  # No setting of the product.
        variables = {**ours, "PYTHONPATH": str(ROOT), **(env or {}), name: value}
        process = subprocess.Popen(
            command, cwd=self.directory, env=variables, text=True, start_new_session=True,
            stdout=subprocess.PIPE, stderr=log or subprocess.PIPE, **how,
        )  # fmt: skip
        self._started.append(process)
        return process

    def pids(self) -> list[int]:
        """Return the processes of this machine that live."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    if self.mark.encode() in (entry / "environ").read_bytes().split(b"\0"):
                        found.append(int(entry.name))
        return found

    def working(self) -> list[int]:
        """Return those that live and are no agents of Ray's, which outlive their node by up to a minute, idle."""
        found = []
        for pid in self.pids():
            with contextlib.suppress(OSError):
                if b"Agent" not in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(pid)
        return found

    def kill(self) -> int:
        """Kill all of them at once, as a power cut does; return how many there were."""
        count = 0
        until = time.monotonic() + PATIENCE_S
        while pids := self.pids():
            assert time.monotonic() < until, "processes do not die"
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    count += 1
            for process in self._started:
                process.poll()
        for process in self._started:
            process.wait(PATIENCE_S)
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
        return count


@contextlib.contextmanager
def machine(directory: Path) -> Iterator[Machine]:
    """Yield a machine on which nothing runs yet; nothing runs there afterwards."""
    made = Machine(directory)
    try:
        yield made
    finally:
        made.kill()


def written(chosen: Config, directory: Path) -> Path:
    """Write a configuration as `fairlead.toml`; return its path."""
    lines = ["[shards]", *(f'{name} = "{url}"' for name, url in chosen.shards.items())]
    lines += ["[external]", *(f'{name} = "{dsn}"' for name, dsn in chosen.external.items())]
    for section, settings in (("consumer", chosen.consumer), ("zones", chosen.zones)):
        lines.append(f"[{section}]")
        default = type(settings)()
        for name in settings.__slots__:
            value = getattr(settings, name)
            if value != getattr(default, name):
                lines.append(f"{name} = {value}")
    path = directory / "fairlead.toml"
    path.write_text("\n".join(lines) + "\n")
    return path


@contextlib.contextmanager
def opened(chosen: Config) -> Iterator[App]:
    """Yield an application on the same stores, for the test to enqueue and to look with."""
    app = App(config=chosen)
    try:
        yield app
    finally:
        app.close()
