"""A FoundationDB of one process that a test starts, kills, stops, starts again: fdbserver and fdbcli from the PATH.

It listens on this machine only, keeps its data in the test's directory, and ends with the test.
"""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import pytest

AVAILABLE_WITHIN_S = 60
ASKED_AGAIN_S = 0.2

needs_server = pytest.mark.skipif(
    shutil.which("fdbserver") is None or shutil.which("fdbcli") is None,
    reason="needs fdbserver and fdbcli in the PATH, to start and kill a FoundationDB of its own",
)


class FoundationServer:
    """One fdbserver with its cluster. Used as a context: it is started, and killed at the end.

    `url`: as an application names it.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._address = f"127.0.0.1:{free_port()}"
        self.cluster_file = directory / "fdb.cluster"
        self.cluster_file.write_text(f"test:test@{self._address}\n")
        self.url = f"fdb:{self.cluster_file}"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> FoundationServer:
        self.start()
        self._ask_until("configure new single ssd", ("Database created", "already exists"))
        self.await_available()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.kill()

    def start(self) -> None:
        """Start the process; it answers a moment later."""
        command = [
            "fdbserver",
            *("--cluster-file", str(self.cluster_file)),
            *("--public-address", self._address, "--listen-address", "public"),
            *("--datadir", str(self._directory / "data"), "--logdir", str(self._directory / "log")),
        ]
        (self._directory / "log").mkdir(exist_ok=True)
        with (self._directory / "fdbserver.out").open("ab") as out:
            self._process = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)

    def kill(self) -> None:
        """SIGKILL: what it had not written is gone, as with its machine's power."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def restart(self) -> None:
        """Kill it and start it again."""
        self.kill()
        self.start()

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Let it stand still (SIGSTOP) meanwhile."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def await_available(self) -> None:
        """Wait until it takes transactions."""
        self._ask_until("status minimal", ("is available",))

    def _ask_until(self, command: str, answers: tuple[str, ...]) -> None:
        until = time.monotonic() + AVAILABLE_WITHIN_S
        while True:
            ask = ["fdbcli", "-C", str(self.cluster_file), "--timeout", "5", "--exec", command]
            said = subprocess.run(ask, capture_output=True, text=True, check=False).stdout
            if any(answer in said for answer in answers):
                return
            assert time.monotonic() < until, f"{command}: {said}"
            time.sleep(ASKED_AGAIN_S)


def free_port() -> int:
    """Return a port on this machine on which nobody listens."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
