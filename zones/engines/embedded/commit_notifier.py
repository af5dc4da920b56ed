"""Commit notifier: wakes processes that wait for commits of other processes, so that they need not poll often.

A mapped file beside the store has one byte per slot. A listener occupies a slot: it binds the slot's datagram socket,
which only one process can, and sets the byte. A process that commits notifies every slot that another process occupies.

Notifications are best effort: one can be lost, early or without a commit. A process that finds the owner of a slot dead
clears the byte. Linux only, and within one network namespace: notifications do not cross it.
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
_OWNER_GONE: Final = ConnectionRefusedError, FileNotFoundError  # Raised if the slot's owner has died.


class CommitNotifier:
    """The notifier of one store, as one process uses it; thread-safe."""

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
        """Notify listeners of other processes of a commit. Costs a microsecond, and some 5 µs per listener."""
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
                    continue  # Its queue of notifications is full, so it wakes anyway.

    def listener(self) -> Listener | None:
        """Occupy a slot and return its listener; None if this system has no notifier, or every slot is occupied."""
        if self._map is None and not self._open():
            return None
        listener_socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        for slot in range(SLOTS):
            try:
                listener_socket.bind(self._address + str(slot))
            except OSError:
                continue  # Another process occupies it.
            self._own_slots.add(slot)
            return Listener(self, slot, listener_socket)
        listener_socket.close()
        return None

    def close(self) -> None:
        """Notify no more, and give out no more listeners."""
        self._disabled = True
        self.reset()

    def reset(self) -> None:
        """Close socket and file. In a forked child the slots stay the parent's."""
        self._own_slots.clear()
        self._opening = threading.Lock()
        if self._socket is not None:
            self._socket.close()
        self._socket = self._map = None  # The map is closed with the last listener that holds it.

    def occupy(self, slot: int) -> None:
        """Set the byte of a slot."""
        self._set(slot, 1)

    def vacate(self, slot: int) -> None:
        """Clear the byte of a slot."""
        self._own_slots.discard(slot)
        self._set(slot, 0)

    def _set(self, slot: int, taken: int) -> None:
        slots = self._map
        if slots is not None:
            slots[slot] = taken

    def _open(self) -> bool:
        """Open the file, and create it if it is missing; False if that fails."""
        with self._opening:
            if self._map is None and not self._disabled:
                try:
                    self._open_file()
                except (OSError, ValueError):  # No space, or no permission: listeners must poll.
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
    """The owner of a slot. One thread at a time."""

    def __init__(self, notifier: CommitNotifier, slot: int, listener_socket: socket.socket) -> None:
        self._notifier = notifier
        self._slot = slot
        self._socket = listener_socket

    def wait(self, timeout_s: float) -> bool:
        """Wait for a notification, and discard all further ones; False if none came in time."""
        # Each time: another process may have cleared the byte because the slot's last owner had died.
        self._notifier.occupy(self._slot)
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
        """Release the slot."""
        self._notifier.vacate(self._slot)
        self._socket.close()
