"""How often a process of a fleet collects cyclic garbage."""

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
gc.collect()  # The collector starts after some hundred new objects: those of the imports must not count.
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


def test_a_process_that_has_grown_by_large_buffers_in_cycles_collects_them() -> None:
    """Few objects held them, too few to start the collector: a fleet grew by hundreds of megabytes."""
    assert printed(rarely=True) == ["100", "0", "3"]


def test_a_process_of_a_user_collects_as_usual() -> None:
    assert printed(rarely=False) == ["100", "100", "103"]
