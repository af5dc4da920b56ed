"""How often a process of a fleet's own looks for cycles among its objects."""

from __future__ import annotations

import subprocess
import sys

LEAVES_CYCLES = """
import gc
from fairlead.actors.runtime.garbage_collection import GROWN_BYTES, collect_if_grown, collect_rarely

class Node:
    alive = 0
    def __init__(self):
        self.me, self.buffer = self, b"x" * 1_000_000
        Node.alive += 1
    def __del__(self):
        Node.alive -= 1

def leave(count):
    for _ in range(count):
        Node()

if {rarely}:
    collect_rarely()
leave(100)
before = Node.alive
collect_if_grown()
print(before, Node.alive)
leave(3)
collect_if_grown()
print(Node.alive)
"""


def printed(*, rarely: bool) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", LEAVES_CYCLES.format(rarely=rarely)], capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def test_what_has_grown_by_large_buffers_in_cycles_is_collected() -> None:
    """Few objects hold them, too few for the collector to begin: a fleet grew by hundreds of megabytes."""
    assert printed(rarely=True) == ["100", "0", "3"]


def test_a_process_that_is_not_a_fleets_own_is_left_alone() -> None:
    assert printed(rarely=False) == ["100", "100", "103"]
