"""Letterboxes: a mapped file beside a store, in which processes leave bytes for one another.

Each process that has something to leave takes a box, and keeps it while it lives. A box holds one letter at a time and
one answer to it. A word, which wakes the owner of a box, is a datagram, so a wait for one ends early or late but ends.

Nothing here is promised: what is read may be torn, old, or replaced at this moment, since nobody locks anything. So
each text has a checksum, its name included, and `flat_combining` relies on no letter being read, or answered. Linux
only, and within one network namespace: across them words do not arrive.

    tables    the names of the letters, one per box; the names of the answers
    boxes     a letter, and an answer, each behind its length and checksum
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
_LEADER_BYTE: Final = 0  # The byte whose lock is the lead; those after it are the boxes'.


class Mailbox:
    """The letterboxes of one store, as one process uses them; one thread at a time."""

    def __init__(self, store: Path) -> None:
        """Open the file, made if it is missing.

        Raises:
          OSError, ValueError: this system, or this disk, has no place for it.
        """
        path = store / FILE
        make_file(path, _FILE_BYTES)
        self._number: int | None = None
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
        """Give the box back. In a forked child: let go of the parent's."""
        self._socket.close()
        self._map.close()
        os.close(self._file)

    # --- The lead ---

    def try_become_leader(self) -> bool:
        """Take the lead among the processes; False if another has it. It goes with the process."""
        return self._try_lock(_LEADER_BYTE)

    def step_down(self) -> None:
        """Give up the lead."""
        self._unlock(_LEADER_BYTE)

    # --- As the owner of a box ---

    @property
    def number(self) -> int:
        """The box that this process has taken."""
        assert self._number is not None
        return self._number

    def acquire_slot(self) -> bool:
        """Take a box, if this process has none; False if none is free.

        It has none, too, if it has lost the lock of its own: by closing another descriptor of the file, as whoever
        copies the store's folder does.
        """
        if self._number is not None and not self._try_lock(1 + self._number):
            self._number = None
            self._socket.close()
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        if self._number is None:
            for number in range(SLOTS):
                if self._try_lock(1 + number):
                    with suppress(OSError):  # Words for it go to somebody in another container, and it waits longer.
                        self._socket.bind(self._address + str(number))
                    self._number = number
                    self._clear_names(number)  # A letter that its last owner left behind is nobody's.
                    break
        return self._number is not None

    def post(self, name: bytes, batch: bytes) -> None:
        """Put a letter into the box."""
        self._put(_BATCHES_OFFSET + self.number * _BATCH_STRIDE, name, batch)
        self._name = name
        self._set_name(_BATCH_TABLE, self.number, name)

    def withdraw(self) -> None:
        """Empty the box."""
        if self._name != _NO_NAME:
            self._clear_names(self.number)
            self._name = _NO_NAME

    def answer(self) -> bytes | None:
        """Return the answer to the letter in the box, if there is one."""
        if self._name_at(_ANSWER_TABLE, self.number) != self._name:
            return None
        return self._get(_ANSWERS_OFFSET + self.number * _ANSWER_STRIDE, self._name, _ANSWER_BYTES_MAX)

    def await_wakeup(self, wait_s: float) -> None:
        """Wait until somebody says that there is news, or until the time is over."""
        self._socket.settimeout(wait_s)
        with suppress(OSError):  # The time is over, as a rule.
            self._socket.recv(1)

    # --- As whoever looks into the others' ---

    def unanswered(self) -> list[int]:
        """Return the boxes of others that hold a letter without an answer."""
        if self._map[_BATCH_TABLE:_ANSWER_TABLE] == self._map[_ANSWER_TABLE : _ANSWER_TABLE + _TABLE_BYTES]:
            return []
        return [
            number
            for number in range(SLOTS)
            if number != self._number
            and self._name_at(_BATCH_TABLE, number) not in (_NO_NAME, self._name_at(_ANSWER_TABLE, number))
        ]

    def batch_names(self) -> bytes:
        """Return what tells which letters have been left so far; for `count_followers_since`."""
        return self._map[_BATCH_TABLE:_ANSWER_TABLE]

    def count_followers_since(self, known: bytes) -> int:
        """Return how many others have left a letter, answered or not, since `batch_names` answered `known`."""
        now = self._map[_BATCH_TABLE:_ANSWER_TABLE]
        if now == known:
            return 0
        slots = (
            slice(number * NAME_BYTES, (number + 1) * NAME_BYTES) for number in range(SLOTS) if number != self._number
        )
        return sum(now[slot] not in (known[slot], _NO_NAME) for slot in slots)

    def batches(self) -> Iterator[tuple[int, bytes, bytes]]:
        """Yield the unanswered letters of others that live: box, name, and text."""
        for number in self.unanswered():
            name = self._name_at(_BATCH_TABLE, number)
            batch = self._get(_BATCHES_OFFSET + number * _BATCH_STRIDE, name, BATCH_BYTES_MAX)
            if batch is not None and self._has_owner(number):
                yield number, name, batch

    def put_answer(self, number: int, name: bytes, answer: bytes) -> None:
        """Answer the letter of that name in a box, and say a word."""
        self._put(_ANSWERS_OFFSET + number * _ANSWER_STRIDE, name, answer)
        self._set_name(_ANSWER_TABLE, number, name)
        self.wake(number)

    def wake(self, number: int) -> None:
        """Wake the owner of a box."""
        with suppress(OSError):  # It is dead, or has been told so often that it will wake anyway.
            self._socket.sendto(b"\0", socket.MSG_DONTWAIT, self._address + str(number))

    def _has_owner(self, number: int) -> bool:
        """Whether the owner of a box lives. A dead one's letter is taken out: nothing is to happen after its death."""
        if not self._try_lock(1 + number):
            return True
        self._clear_names(number)
        self._unlock(1 + number)
        return False

    # --- Bytes ---

    def _name_at(self, table: int, number: int) -> bytes:
        begin = table + number * NAME_BYTES
        return self._map[begin : begin + NAME_BYTES]

    def _set_name(self, table: int, number: int, name: bytes) -> None:
        begin = table + number * NAME_BYTES
        self._map[begin : begin + NAME_BYTES] = name

    def _clear_names(self, number: int) -> None:
        self._set_name(_BATCH_TABLE, number, _NO_NAME)
        self._set_name(_ANSWER_TABLE, number, _NO_NAME)

    def _put(self, at: int, name: bytes, text: bytes) -> None:
        self._map[at : at + _HEAD.size + len(text)] = _HEAD.pack(len(text), crc32(text, crc32(name))) + text

    def _get(self, at: int, name: bytes, bytes_max: int) -> bytes | None:
        size, checksum = _HEAD.unpack_from(self._map, at)
        if size > bytes_max:
            return None
        text = self._map[at + _HEAD.size : at + _HEAD.size + size]
        return text if crc32(text, crc32(name)) == checksum else None

    def _try_lock(self, byte: int) -> bool:
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
        except OSError:  # Another process has it; or there are no locks to be had here.
            return False
        return True

    def _unlock(self, byte: int) -> None:
        fcntl.lockf(self._file, fcntl.LOCK_UN, 1, byte)
