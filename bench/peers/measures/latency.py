"""Latency: from the time to send a job to its first line, at a low rate and at half of the rate that the system holds.

The rate held is measured first. Four processes send jobs one by one as fast as they are acknowledged, but wait while a
thousand jobs have not started yet. After the beginning, the starts per second are the rate held. Half of this rate is
then sent evenly, by senders that do not wait for the system: see `open_loop`.
"""

from bench.peers.job import Start, starts
from bench.peers.producing import PROCESSES, closed_loop, open_loop
from bench.peers.sizes import Sizes
from bench.peers.testbed import MEASURED, WARM, Testbed
from bench.report import percentile

LOW_PER_S = 100
AHEAD_MAX = 1_000  # More than the prefetch of any system.
HALF, HELD = 10, 11  # Tags.
UNSETTLED = 0.3  # The first part of the search for the rate held, which does not count.


def measure(testbed: Testbed, sizes: Sizes) -> dict[str, float | None]:
    """Measure at 100 jobs a second, then search for the rate held, then measure at half of this rate.

    Raises:
      RoundFailed: jobs that were sent did not start.
    """
    testbed.start_warm_workers()
    _offer(testbed, LOW_PER_S, sizes.warm_s, WARM)
    low = _offer(testbed, LOW_PER_S, sizes.latency_s, MEASURED)
    held = _rate_held(testbed, sizes)
    half = _offer(testbed, held / 2, sizes.latency_s, HALF)
    return {
        "at_100_p50": percentile(low, 50),
        "at_100_p99": percentile(low, 99),
        "held": held,
        "at_half_p50": percentile(half, 50),
        "at_half_p99": percentile(half, 99),
    }


def _offer(testbed: Testbed, per_s: float, seconds: float, tag: int) -> list[float]:
    sent = open_loop(per_s, seconds, tag=tag)
    testbed.await_starts(tag, sent)
    return latencies_ms(starts(tag))


def latencies_ms(started: list[Start]) -> list[float]:
    """Return the milliseconds from the due time of each job to its start."""
    return [(start.started_ns - start.due_ns) / 1e6 for start in started]


def _rate_held(testbed: Testbed, sizes: Sizes) -> float:
    sent = closed_loop(sizes.held_s, tag=HELD, processes=PROCESSES, ahead_max=AHEAD_MAX)
    from_s, until_s = max(each.from_s for each in sent), min(each.until_s for each in sent)
    testbed.await_done()
    from_s += UNSETTLED * (until_s - from_s)
    within = [start for start in starts(HELD) if from_s <= start.started_ns / 1e9 < until_s]
    return len(within) / (until_s - from_s)
