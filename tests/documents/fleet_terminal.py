"""The terminal of a page's fleet, or of its dashboard: waits for output, and presses Ctrl-C where the page shows it."""

import os
import signal
import subprocess
import threading
import time
from pathlib import Path

from tests.documents.transcripts import begins_alike, ends_alike, tidy

PATIENCE_S = 90.0
CTRL_C = "^C"


class NotShown(AssertionError):
    """A fleet did not show what its page prints."""


class FleetTerminal:
    """A `fairlead run`, or `dashboard`, that runs beside the other blocks of the page."""

    def __init__(self, typed: str, folder: Path, env: dict[str, str]) -> None:
        self._typed = typed
        self._shown = ""
        self._grown = threading.Condition()
        self._process = subprocess.Popen(
            ["bash", "-c", f"exec {typed}"],
            cwd=folder,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def runs(self) -> bool:
        """Whether the command has not ended yet."""
        return self._process.poll() is None

    def show(self, printed: str) -> None:
        """Wait for the output that the page prints, and press Ctrl-C where it shows `^C`.

        Raises:
          NotShown: other output, or none for too long, or the fleet ended with an error.
        """
        before, interrupted, after = printed.partition(CTRL_C)
        self._wait_for(before)
        if not interrupted:
            return
        self._process.send_signal(signal.SIGINT)
        code = self._process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        if code != 0 or not ends_alike(after, self._shown):
            raise NotShown(f"{self._typed} ended with {code}, after Ctrl-C it showed\n{self._shown}\nand not\n{after}")

    def close(self) -> None:
        """End the fleet if it still runs; it drains first."""
        if self.runs:
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._reader.join(PATIENCE_S)
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _wait_for(self, printed: str) -> None:
        """Wait for lines, and remove them from the output so far."""
        until = time.monotonic() + PATIENCE_S
        with self._grown:
            while (found := begins_alike(printed, self._shown)) is None:
                left_s = until - time.monotonic()
                if left_s <= 0 or not (self.runs or self._reader.is_alive()):
                    raise NotShown(f"{self._typed} showed\n{self._shown}\nand not\n{printed}")
                self._grown.wait(min(left_s, 0.5))
            self._shown = tidy(self._shown)[found.end() :]

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._grown:
                self._shown += line
                self._grown.notify_all()
