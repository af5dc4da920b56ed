"""All processes of a round are found and ended, even those that have outlived their parents."""

import subprocess
import sys

PROGRAM = """
import os, subprocess, time
from bench.peers import processes
processes.adopt_orphans()
# The shell ends at once; what it leaves behind sleeps in a session of its own.
subprocess.run(["sh", "-c", "setsid sleep 1000 & setsid sh -c 'sleep 1000 & sleep 1000' &"], check=True)
while len(processes.below(os.getpid())) < 4:
    time.sleep(0.01)
found = processes.below(os.getpid())
print(sorted(processes.spent_s(found)) == sorted(found), sum("sleep" in processes.name(pid) for pid in found))
processes.end_all_below()
print(processes.below(os.getpid()))
"""


def test_orphans_are_adopted_counted_and_ended() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False)
    assert ended.stdout.split("\n")[:2] == ["True 4", "[]"], ended.stderr
