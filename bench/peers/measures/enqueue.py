"""Enqueueing into a system without workers: jobs per second that it acknowledges. Afterwards all of them are there."""

from bench.peers.producing import PROCESSES, Sent, closed_loop, rate
from bench.peers.sizes import Sizes
from bench.peers.testbed import RoundFailed, Testbed


def measure(testbed: Testbed, sizes: Sizes) -> dict[str, float | None]:
    """Enqueue one by one; in bulk, where the system can; and one by one from four processes.

    Raises:
      TurnFailed: an acknowledged job is not there.
    """
    ways: dict[str, list[Sent]] = {"enqueue_one": closed_loop(sizes.enqueue_s)}
    if testbed.system.has_bulk:
        ways["enqueue_bulk"] = closed_loop(sizes.enqueue_s, bulk=True)
    ways["enqueue_four"] = closed_loop(sizes.enqueue_s, processes=PROCESSES)
    acknowledged = sum(each.jobs + 1 for sent in ways.values() for each in sent)  # The first of each opens connections.
    left = testbed.system.left()
    if left != acknowledged:
        raise RoundFailed(f"{acknowledged} jobs were acknowledged, {left} are there")
    return {"enqueue_bulk": None} | {way: rate(sent) for way, sent in ways.items()}
