"""The cost of a system that has nothing to do for a million tenants: each has one job, which is to run tomorrow."""

from bench.peers.job import new_job
from bench.peers.measures.idle import idle_s
from bench.peers.sizes import Sizes
from bench.peers.testbed import SECOND, Testbed


def measure(testbed: Testbed, sizes: Sizes) -> dict[str, float | None]:
    """Enqueue the jobs for tomorrow, wait until later jobs have run, and measure as `idle` does.

    Raises:
      RoundFailed: a job that was sent behind them has not run within ten minutes.
    """
    testbed.start_warm_workers()
    testbed.system.enqueue_for_later(sizes.tenants)
    with testbed.system.producer() as producer:
        for sent in range(1, 3):  # The first may run in the middle of what the system does for those of tomorrow.
            producer.send(new_job(tag=SECOND))
            testbed.await_starts(SECOND, sent)
    return {"idle_million": idle_s(sizes)}
