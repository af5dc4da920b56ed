"""The life of a process: a name that tells whether it has ended, to whoever can see."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fairlead.actors.runtime.process_identity import has_ended, this_incarnation

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="only Linux tells of other processes")

TELL = (
    "from fairlead.actors.runtime.process_identity import this_incarnation; "
    "print(this_incarnation().decode(), flush=True); input()"
)


@pytest.fixture
def other() -> subprocess.Popen[str]:
    """Another process, which ends when it is told to."""
    return subprocess.Popen([sys.executable, "-c", TELL], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def own_life() -> bytes:
    life = this_incarnation()
    assert life is not None
    return life


def life_of(process: subprocess.Popen[str]) -> bytes:
    assert process.stdout is not None
    return process.stdout.readline().strip().encode()


def test_a_process_that_runs_has_not_ended_and_bears_one_name(other: subprocess.Popen[str]) -> None:
    life = life_of(other)
    assert not has_ended(life)
    assert not has_ended(own_life())
    assert own_life() == own_life() != life
    other.communicate("\n")


def test_one_that_was_killed_has_ended_before_its_parent_looks_and_after(other: subprocess.Popen[str]) -> None:
    life = life_of(other)
    other.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
    assert has_ended(life)
    other.communicate()
    assert has_ended(life)


def test_one_that_is_stopped_has_not_ended(other: subprocess.Popen[str]) -> None:
    life = life_of(other)
    other.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, other.pid, os.WSTOPPED)
    assert not has_ended(life)
    other.send_signal(signal.SIGCONT)
    other.communicate("\n")


def test_another_process_under_its_number_is_not_it() -> None:
    boot, space, pid, started = own_life().split()
    assert has_ended(b" ".join([boot, space, pid, b"%d" % (int(started) - 1)]))


@pytest.mark.parametrize("strange", [0, 1])
def test_of_another_machine_or_namespace_nobody_can_tell(strange: int) -> None:
    parts = own_life().split()
    parts[strange] = b"another"
    parts[2] = b"1234567890"
    assert not has_ended(b" ".join(parts))


@pytest.mark.parametrize("life", [b"", b"sixteen bytes of", b"a b c d"])
def test_nobody_can_tell_of_a_life_that_is_named_otherwise(life: bytes) -> None:
    assert not has_ended(life)


def test_a_process_whose_name_is_cut_within_a_letter_has_a_life_as_any() -> None:
    """Linux cuts names at 15 bytes. Before, to look at such a process raised, and ended the loop that looked."""
    title = "import ctypes; ctypes.CDLL(None).prctl(15, 'fairlead-prüfungen'.encode()[:12]); "
    with subprocess.Popen(
        [sys.executable, "-c", title + TELL], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as named:
        life = life_of(named)
        assert b"\xc3)" in Path(f"/proc/{named.pid}/stat").read_bytes()
        assert not has_ended(life)
        named.kill()
    assert has_ended(life)
