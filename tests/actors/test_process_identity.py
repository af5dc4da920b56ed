"""The name of a process, and whether the process has ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fairlead.actors.runtime.process_identity import has_ended, this_incarnation

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")

PROGRAM = (
    "from fairlead.actors.runtime.process_identity import this_incarnation; "
    "print(this_incarnation().decode(), flush=True); input()"
)


@pytest.fixture
def other() -> subprocess.Popen[str]:
    """Another process, which ends when it reads a line."""
    return subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def own_incarnation() -> bytes:
    incarnation = this_incarnation()
    assert incarnation is not None
    return incarnation


def incarnation_of(process: subprocess.Popen[str]) -> bytes:
    assert process.stdout is not None
    return process.stdout.readline().strip().encode()


def test_a_running_process_has_not_ended_and_has_one_name(other: subprocess.Popen[str]) -> None:
    incarnation = incarnation_of(other)
    assert not has_ended(incarnation)
    assert not has_ended(own_incarnation())
    assert own_incarnation() == own_incarnation() != incarnation
    other.communicate("\n")


def test_a_killed_process_has_ended_before_its_parent_waits_for_it_and_after(other: subprocess.Popen[str]) -> None:
    incarnation = incarnation_of(other)
    other.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
    assert has_ended(incarnation)
    other.communicate()
    assert has_ended(incarnation)


def test_a_stopped_process_has_not_ended(other: subprocess.Popen[str]) -> None:
    incarnation = incarnation_of(other)
    other.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, other.pid, os.WSTOPPED)
    assert not has_ended(incarnation)
    other.send_signal(signal.SIGCONT)
    other.communicate("\n")


def test_another_process_with_the_same_id_is_not_the_same_process() -> None:
    boot, space, pid, started = own_incarnation().split()
    assert has_ended(b" ".join([boot, space, pid, b"%d" % (int(started) - 1)]))


@pytest.mark.parametrize("strange", [0, 1])
def test_a_process_of_another_machine_or_namespace_has_not_ended_for_certain(strange: int) -> None:
    parts = own_incarnation().split()
    parts[strange] = b"another"
    parts[2] = b"1234567890"
    assert not has_ended(b" ".join(parts))


@pytest.mark.parametrize("incarnation", [b"", b"sixteen bytes of", b"a b c d"])
def test_a_name_of_another_form_has_not_ended_for_certain(incarnation: bytes) -> None:
    assert not has_ended(incarnation)


def test_a_process_whose_name_is_cut_within_a_letter_can_be_named() -> None:
    """Linux cuts names at 15 bytes. Reading such a name raised an error and ended the manager's loop."""
    title = "import ctypes; ctypes.CDLL(None).prctl(15, 'fairlead-prüfungen'.encode()[:12]); "
    with subprocess.Popen(
        [sys.executable, "-c", title + PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as named:
        incarnation = incarnation_of(named)
        assert b"\xc3)" in Path(f"/proc/{named.pid}/stat").read_bytes()
        assert not has_ended(incarnation)
        named.kill()
    assert has_ended(incarnation)
