"""Enqueueing into a system without workers: acknowledged jobs per second. Afterwards the system must have all jobs."""

from bench.peers.producing import PROCESSES, Sent, closed_loop, rate
from bench.peers.sizes import Sizes
from bench.peers.testbed import RoundFailed, Testbed


def measure(testbed: Testbed, sizes: Sizes) -> dict[str, float | None]:
    """Enqueue one by one; in bulk, if the system can; and one by one from four processes.

    Raises:
      RoundFailed: an acknowledged job is missing.
    """
    ways: dict[str, list[Sent]] = {"enqueue_one": closed_loop(sizes.enqueue_s)}
    if testbed.system.has_bulk:
        ways["enqueue_bulk"] = closed_loop(sizes.enqueue_s, bulk=True)
    ways["enqueue_four"] = closed_loop(sizes.enqueue_s, processes=PROCESSES)
    acknowledged = sum(
        each.jobs + 1 for sent in ways.values() for each in sent
    )  # The first job of each process opens connections.
    left = testbed.system.left()
    if left != acknowledged:
        raise RoundFailed(f"{acknowledged} jobs were acknowledged, {left} are there")
    return {"enqueue_bulk": None} | {way: rate(sent) for way, sent in ways.items()}
