"""Sending jobs from fresh processes: as fast as they are acknowledged, or at the times when they are due.

A measure's own process never sends, so that no other work delays a sender.
"""

import time
from collections.abc import Iterator
from typing import Literal, NamedTuple

from bench import harness
from bench.peers.job import count, new_job
from bench.peers.round_context import CONTEXT
from bench.peers.systems import load

BULK = 100
PROCESSES = 4
TENANTS = 1_000
LOOK_EVERY = 10  # Jobs between two checks of the workers' progress, for a sender that must not run ahead.
LOOK_S = 0.002
ALONE_PER_S_MAX = 150  # Above this rate, four processes send, so that a slow client library does not limit the figure.


Way = Literal["producer", "buyer", "later"]


class Sent(NamedTuple):
    """The jobs that one process sent, and the times, in seconds of the monotonic clock."""

    jobs: int
    from_s: float
    until_s: float


def closed_loop(
    seconds: float,
    *,
    tag: int = 0,
    processes: int = 1,
    bulk: bool = False,
    ahead_max: int | None = None,
    way: Way = "producer",
    warm_s: float = 0,
) -> list[Sent]:
    """Send for `seconds`, each job as soon as the one before it was acknowledged.

    Args:
      bulk: a hundred jobs at once.
      ahead_max: wait while about this number of jobs of all processes have not started yet; None: do not wait.
      way: the method of the system that opens the producer.
      warm_s: send for so long before; these jobs do not count.
    """
    base = count()
    arguments = [(seconds, tag, bulk, number, processes, base, ahead_max, way, warm_s) for number in range(processes)]
    return harness.run_in_processes(_send_as_fast, arguments)


def fill(jobs: int, *, tag: int, tenants: int, nap_ms: int = 0) -> list[Sent]:
    """Send `count` jobs from four processes, in bulk if the system can."""
    shares = [range(number, jobs, PROCESSES) for number in range(PROCESSES)]
    return harness.run_in_processes(_send_share, [(share, tag, tenants, nap_ms) for share in shares])


def open_loop(per_s: float, seconds: float, *, tag: int) -> int:
    """Send jobs when they are due, without waiting for the system. Return the number of jobs.

    A late sender sends all due jobs at once. Each job contains the time to send it, so its wait for the sender counts,
    too ("coordinated omission").
    """
    processes = 1 if per_s <= ALONE_PER_S_MAX else PROCESSES
    return sum(
        harness.run_in_processes(_send_when_due, [(per_s, seconds, tag, n, processes) for n in range(processes)])
    )


def rate(sent: list[Sent]) -> float:
    """Return jobs per second of all processes together."""
    return sum(each.jobs for each in sent) / (max(each.until_s for each in sent) - min(each.from_s for each in sent))


def due_times(from_ns: int, per_s: float, seconds: float, number: int, processes: int) -> Iterator[int]:
    """Yield when the jobs of sender `number` of `processes` are due: together they are evenly spaced."""
    step_ns = 1e9 / per_s
    return (from_ns + int(job * step_ns) for job in range(number, int(per_s * seconds), processes))


def _send_as_fast(
    seconds: float,
    tag: int,
    bulk: bool,
    number: int,
    processes: int,
    base: int,
    ahead_max: int | None,
    way: Way,
    warm_s: float,
) -> Sent:
    sent = early = 0
    with getattr(load(CONTEXT.system), way)() as producer:
        producer.send(new_job(tag=tag, tenant=number))  # Opens its connections.
        harness.wait_for_all()
        from_s = time.monotonic() + warm_s
        while time.monotonic() < from_s + seconds:
            if bulk:
                producer.send_many([new_job(tag=tag, tenant=(sent + job) % TENANTS) for job in range(BULK)])
            else:
                producer.send(new_job(tag=tag, tenant=(sent * PROCESSES + number) % TENANTS))
            sent += BULK if bulk else 1
            if time.monotonic() < from_s:
                early = sent
            if ahead_max is not None and sent % LOOK_EVERY == 0:
                # Each process sends about the same number of jobs, so its own number gives the sum.
                while sent * processes - (count() - base) > ahead_max and time.monotonic() < from_s + seconds:
                    time.sleep(LOOK_S)
        return Sent(sent - early, from_s, time.monotonic())


def _send_share(share: range, tag: int, tenants: int, nap_ms: int) -> Sent:
    with load(CONTEXT.system).producer() as producer:
        harness.wait_for_all()
        from_s = time.monotonic()
        for begin in range(0, len(share), BULK):
            numbers = share[begin : begin + BULK]
            producer.send_many([new_job(tag=tag, tenant=number % tenants, nap_ms=nap_ms) for number in numbers])
        return Sent(len(share), from_s, time.monotonic())


def _send_when_due(per_s: float, seconds: float, tag: int, number: int, processes: int) -> int:
    sent = 0
    with load(CONTEXT.system).producer() as producer:
        harness.wait_for_all()
        for due_ns in due_times(time.monotonic_ns(), per_s, seconds, number, processes):
            left_s = (due_ns - time.monotonic_ns()) / 1e9
            if left_s > 0:
                time.sleep(left_s)
            producer.send(new_job(tag=tag, due_ns=due_ns, tenant=sent % TENANTS))
            sent += 1
    return sent
