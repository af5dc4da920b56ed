"""The mailbox: a mapped file beside a store, through which processes submit commit requests.

Each process that submits requests acquires a slot, and keeps the slot while it lives. A slot holds one batch of
requests and one answer at a time. A wake-up is a datagram to the owner of a slot. Wake-ups can be lost, so every wait
has a limit.

The content is best effort: there are no locks, so bytes can be torn, old, or replaced while they are read. Each entry
therefore has a checksum that includes its name. `flat_combining` depends neither on a batch being read nor on an
answer. Linux only, and within one network namespace: wake-ups do not cross it.

Layout of the file:
    tables    the names of the batches, one per slot; the names of the answers
    entries   a batch and an answer per slot, each behind its length and checksum
"""

from __future__ import annotations

import fcntl
import mmap
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final
from zlib import crc32

from fairlead.zones.engines.embedded.shared_files import make_file

FILE: Final = "letters"
SLOTS: Final = 32
NAME_BYTES: Final = 8
BATCH_BYTES_MAX: Final = 8_000
_ANSWER_BYTES_MAX: Final = 1_000
_HEAD: Final = struct.Struct("<II")
_BATCH_STRIDE: Final = 8_192
_ANSWER_STRIDE: Final = 1_024
_BATCHES_OFFSET: Final = 4_096
_ANSWERS_OFFSET: Final = _BATCHES_OFFSET + SLOTS * _BATCH_STRIDE
_FILE_BYTES: Final = _ANSWERS_OFFSET + SLOTS * _ANSWER_STRIDE
_TABLE_BYTES: Final = SLOTS * NAME_BYTES
_BATCH_TABLE: Final = 0
_ANSWER_TABLE: Final = _TABLE_BYTES
_NO_NAME: Final = bytes(NAME_BYTES)
_LEADER_BYTE: Final = 0  # Its lock is leadership. The locks of the bytes after it are the slots' owners'.


class Mailbox:
    """The mailbox of one store, as one process uses it; one thread at a time."""

    def __init__(self, store: Path) -> None:
        """Open the file; create it if it is missing.

        Raises:
          OSError, ValueError: the file cannot be created or mapped here.
        """
        path = store / FILE
        make_file(path, _FILE_BYTES)
        self._slot: int | None = None
        self._name = _NO_NAME
        with ExitStack() as failed:
            self._file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            failed.callback(os.close, self._file)
            self._map = mmap.mmap(self._file, _FILE_BYTES)
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            failed.pop_all()
        found = os.fstat(self._file)
        self._address = f"\0fairlead/{found.st_dev}/{found.st_ino}/"

    def close(self) -> None:
        """Release the slot. In a forked child the slot stays the parent's."""
        self._socket.close()
        self._map.close()
        os.close(self._file)

    # --- Leadership ---

    def try_become_leader(self) -> bool:
        """Become leader; False if another process is. Leadership ends with its process."""
        return self._try_lock(_LEADER_BYTE)

    def step_down(self) -> None:
        """Give up leadership."""
        self._unlock(_LEADER_BYTE)

    # --- For the owner of a slot ---

    @property
    def slot(self) -> int:
        """The slot of this process."""
        assert self._slot is not None
        return self._slot

    def acquire_slot(self) -> bool:
        """Acquire a slot, if this process has none; False if none is free.

        A process also loses its slot when it closes another descriptor of the file, for example after it has copied the
        store's folder: the system then drops the slot's lock.
        """
        if self._slot is not None and not self._try_lock(1 + self._slot):
            self._slot = None
            self._socket.close()
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        if self._slot is None:
            for slot in range(SLOTS):
                if self._try_lock(1 + slot):
                    with suppress(
                        OSError
                    ):  # A process in another container has the address: this one gets no wake-ups.
                        self._socket.bind(self._address + str(slot))
                    self._slot = slot
                    self._clear_names(slot)  # The last owner may have left a batch behind.
                    break
        return self._slot is not None

    def post(self, name: bytes, batch: bytes) -> None:
        """Put a batch of requests into the slot."""
        self._put(_BATCHES_OFFSET + self.slot * _BATCH_STRIDE, name, batch)
        self._name = name
        self._set_name(_BATCH_TABLE, self.slot, name)

    def withdraw(self) -> None:
        """Empty the slot."""
        if self._name != _NO_NAME:
            self._clear_names(self.slot)
            self._name = _NO_NAME

    def answer(self) -> bytes | None:
        """Return the answer to the batch in the slot; None if there is none yet."""
        if self._name_at(_ANSWER_TABLE, self.slot) != self._name:
            return None
        return self._get(_ANSWERS_OFFSET + self.slot * _ANSWER_STRIDE, self._name, _ANSWER_BYTES_MAX)

    def await_wakeup(self, wait_s: float) -> None:
        """Wait for a wake-up, for at most `wait_s`."""
        self._socket.settimeout(wait_s)
        with suppress(OSError):  # Mostly a timeout.
            self._socket.recv(1)

    # --- For the leader ---

    def unanswered(self) -> list[int]:
        """Return the slots of other processes that hold a batch without an answer."""
        if self._map[_BATCH_TABLE:_ANSWER_TABLE] == self._map[_ANSWER_TABLE : _ANSWER_TABLE + _TABLE_BYTES]:
            return []
        return [
            slot
            for slot in range(SLOTS)
            if slot != self._slot
            and self._name_at(_BATCH_TABLE, slot) not in (_NO_NAME, self._name_at(_ANSWER_TABLE, slot))
        ]

    def batch_names(self) -> bytes:
        """Return the names of all posted batches, for `count_followers_since`."""
        return self._map[_BATCH_TABLE:_ANSWER_TABLE]

    def count_followers_since(self, known: bytes) -> int:
        """Return how many other processes have posted a batch since `batch_names` returned `known`."""
        now = self._map[_BATCH_TABLE:_ANSWER_TABLE]
        if now == known:
            return 0
        names = (slice(slot * NAME_BYTES, (slot + 1) * NAME_BYTES) for slot in range(SLOTS) if slot != self._slot)
        return sum(now[name] not in (known[name], _NO_NAME) for name in names)

    def batches(self) -> Iterator[tuple[int, bytes, bytes]]:
        """Yield the unanswered batches of live processes: slot, name, and packed requests."""
        for slot in self.unanswered():
            name = self._name_at(_BATCH_TABLE, slot)
            batch = self._get(_BATCHES_OFFSET + slot * _BATCH_STRIDE, name, BATCH_BYTES_MAX)
            if batch is not None and self._has_owner(slot):
                yield slot, name, batch

    def put_answer(self, slot: int, name: bytes, answer: bytes) -> None:
        """Answer the batch `name` in a slot, and wake the owner."""
        self._put(_ANSWERS_OFFSET + slot * _ANSWER_STRIDE, name, answer)
        self._set_name(_ANSWER_TABLE, slot, name)
        self.wake(slot)

    def wake(self, slot: int) -> None:
        """Wake the owner of a slot."""
        with suppress(OSError):  # It is dead, or has unread wake-ups.
            self._socket.sendto(b"\0", socket.MSG_DONTWAIT, self._address + str(slot))

    def _has_owner(self, slot: int) -> bool:
        """Return whether the owner of a slot lives. Discard the batch of a dead owner: it must not be committed."""
        if not self._try_lock(1 + slot):
            return True
        self._clear_names(slot)
        self._unlock(1 + slot)
        return False

    # --- Bytes ---

    def _name_at(self, table: int, slot: int) -> bytes:
        begin = table + slot * NAME_BYTES
        return self._map[begin : begin + NAME_BYTES]

    def _set_name(self, table: int, slot: int, name: bytes) -> None:
        begin = table + slot * NAME_BYTES
        self._map[begin : begin + NAME_BYTES] = name

    def _clear_names(self, slot: int) -> None:
        self._set_name(_BATCH_TABLE, slot, _NO_NAME)
        self._set_name(_ANSWER_TABLE, slot, _NO_NAME)

    def _put(self, at: int, name: bytes, content: bytes) -> None:
        self._map[at : at + _HEAD.size + len(content)] = _HEAD.pack(len(content), crc32(content, crc32(name))) + content

    def _get(self, at: int, name: bytes, bytes_max: int) -> bytes | None:
        size, checksum = _HEAD.unpack_from(self._map, at)
        if size > bytes_max:
            return None
        content = self._map[at + _HEAD.size : at + _HEAD.size + size]
        return content if crc32(content, crc32(name)) == checksum else None

    def _try_lock(self, byte: int) -> bool:
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
        except OSError:  # Another process has it, or this file system has no locks.
            return False
        return True

    def _unlock(self, byte: int) -> None:
        fcntl.lockf(self._file, fcntl.LOCK_UN, 1, byte)
