"""The bell: a process that waits for others' commits is woken by one, and does not have to ask again and again.

A mapped file beside the store has a byte for each seat. Who listens takes a seat: it binds the seat's datagram socket,
which no two can, and sets the byte. Who commits sends a word to every seat that is taken by another process. A word is
a hint and may be lost, early or vain; a seat whose owner has died is cleared by whoever finds out. Linux only, and
within one network namespace: across them words do not arrive.
"""

from __future__ import annotations

import mmap
import os
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

from fairlead.zones.engines.embedded.shared_files import make_file

FILE: Final = "bell"
SLOTS: Final = 64
_BYTES: Final = 4_096
_NO_LISTENERS: Final = bytes(SLOTS)
_OWNER_GONE: Final = ConnectionRefusedError, FileNotFoundError  # by a socket whose owner has died, or was never there


class CommitNotifier:
    """One store's bell, as one process uses it; thread-safe."""

    def __init__(self, store: Path) -> None:
        """Open nothing yet."""
        self._store = store
        self._map: mmap.mmap | None = None
        self._socket: socket.socket | None = None
        self._address = ""
        self._own_slots: set[int] = set()
        self._opening = threading.Lock()
        self._disabled = sys.platform != "linux"

    def notify(self) -> None:
        """Tell whoever listens in other processes that something was committed. Costs a microsecond if nobody does."""
        if self._map is None and not self._open():
            return
        assert self._map is not None
        assert self._socket is not None
        taken = self._map[:SLOTS]
        if taken == _NO_LISTENERS:
            return
        for slot in range(SLOTS):
            if taken[slot] and slot not in self._own_slots:
                try:
                    self._socket.sendto(b"\0", socket.MSG_DONTWAIT, self._address + str(slot))
                except _OWNER_GONE:
                    self._map[slot] = 0
                except OSError:
                    continue  # It has been told so often that it will wake anyway.

    def listener(self) -> Listener | None:
        """Take a seat and return what listens there; None if that cannot be had here, or every seat is taken."""
        if self._map is None and not self._open():
            return None
        listener_socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        for slot in range(SLOTS):
            try:
                listener_socket.bind(self._address + str(slot))
            except OSError:
                continue  # It is taken.
            self._own_slots.add(slot)
            return Listener(self, slot, listener_socket)
        listener_socket.close()
        return None

    def close(self) -> None:
        """Ring no more, and let nobody take a seat."""
        self._disabled = True
        self.reset()

    def reset(self) -> None:
        """Let go of it; in a forked child, of the parent's."""
        self._own_slots.clear()
        self._opening = threading.Lock()
        if self._socket is not None:
            self._socket.close()
        self._socket = self._map = None  # A listener may still hold the map, and lets go of it.

    def occupy(self, slot: int) -> None:
        """Note that somebody listens on a seat."""
        self._set(slot, 1)

    def vacate(self, slot: int) -> None:
        """Note that nobody listens on a seat any more."""
        self._own_slots.discard(slot)
        self._set(slot, 0)

    def _set(self, slot: int, taken: int) -> None:
        slots = self._map
        if slots is not None:
            slots[slot] = taken

    def _open(self) -> bool:
        """Open the file, made if it is missing; False if that cannot be."""
        with self._opening:
            if self._map is None and not self._disabled:
                try:
                    self._open_file()
                except (OSError, ValueError):  # No room, no right: whoever waits asks again and again.
                    self._disabled = True
            return self._map is not None

    def _open_file(self) -> None:
        path = self._store / FILE
        make_file(path, _BYTES)
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            found = os.fstat(file)
            self._address = f"\0fairlead/{found.st_dev}/{found.st_ino}/"
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._map = mmap.mmap(file, _BYTES)
        finally:
            os.close(file)


class Listener:
    """Somebody on a seat. One thread at a time."""

    def __init__(self, notifier: CommitNotifier, slot: int, listener_socket: socket.socket) -> None:
        self._notifier = notifier
        self._slot = slot
        self._socket = listener_socket

    def wait(self, timeout_s: float) -> bool:
        """Wait for a word, and forget all that have come; False if none did in time."""
        self._notifier.occupy(
            self._slot
        )  # Again and again: somebody may have taken this seat's last owner for this one.
        self._socket.settimeout(timeout_s)
        with suppress(OSError):
            self._socket.recv(1)
            self._socket.setblocking(False)
            with suppress(BlockingIOError):
                while self._socket.recv(1):
                    pass
            return True
        return False

    def close(self) -> None:
        """Leave the seat."""
        self._notifier.vacate(self._slot)
        self._socket.close()
