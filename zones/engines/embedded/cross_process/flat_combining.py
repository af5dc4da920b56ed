"""Joint commits: processes that wait at the same time share one LMDB transaction, and with it one fsync.

One process has the lead. Who wants to commit meanwhile leaves a letter, and waits for a word; the one that leads
commits what it finds in the boxes together with its own, answers, steps down, and wakes one that came too late, to lead
next.

The lead and the letters only save work. What keeps commits apart is LMDB's write lock, and what tells whether a commit
was made is its mark in the commit log; both are right whoever is stopped, killed, or asleep, wherever:
    who leads is stopped                    others go on without the lead after a second, and then wait for LMDB's lock
    who leads dies, with or without a commit, or its answer is lost
                                            its lead is free; who takes it looks for its own mark before it commits
    a letter is found twice                 so does whoever commits it
    who left a letter is interrupted        it looks for its own mark and commits, and only then goes its way
    who left a letter dies                  its letter is thrown away; or it was committed a moment before
    who left a letter sleeps for five seconds, and who led has died
                                            the log may have forgotten: 1021
A letter is taken back, and a commit found or made, under LMDB's lock only: nobody else is at it then.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from fairlead.zones.engines.api.clock import Clock
from fairlead.zones.engines.embedded.cross_process.commit_requests import (
    UNREADABLE,
    mark_of,
    pack,
    pack_answer,
    unpack,
    unpack_answer,
)
from fairlead.zones.engines.embedded.cross_process.mailbox import LETTER_BYTES_MAX, NAME_BYTES, Letterbox
from fairlead.zones.engines.optimistic.commit import CommitRequest, Outcome

# A word that does not come is waited for so long; then whoever leads may have died, or is in another container.
WORD_WAIT_S: Final = 0.002
WORDS_MAX: Final = 500  # And after so many in vain it is stopped, perhaps.

# The time in which a process that has been answered is back with its next commit. Only as long as others have left
# letters since this process had the lead before; so two take turns no more, and do in one commit what took two.
LINGER_S: Final = 5e-5
LINGERS_MAX: Final = 3


class Letter:
    """A letter of another process: where to answer, and what it asks for."""

    __slots__ = ("box", "name", "requests")

    def __init__(self, box: int, name: bytes, requests: list[CommitRequest]) -> None:
        self.box = box
        self.name = name
        self.requests = requests


class JointCommit:
    """This process's part in the joint commits of a store. One thread at a time: the leader of its group."""

    def __init__(self, store: Path, watching: Callable[[], AbstractContextManager[None]]) -> None:
        """Do nothing yet. `watching`: what to wait within."""
        self._store = store
        self._watching = watching
        self._box: Letterbox | None = None
        self._impossible = sys.platform != "linux"
        self._leads = False
        self._pause = threading.Event()  # never set
        self._left = b""
        self._company = 0
        self._count = 0

    def hand_in(self, requests: Sequence[CommitRequest], last_version: Callable[[], int]) -> list[Outcome] | None:
        """Take the lead, or let who has it commit; return what became of the commits, or None: commit them now.

        Args:
          last_version: answers with the version of the last commit; asked only if these are handed in.
        """
        box = self._opened()
        if box is None:
            return None
        if self._lead(box) or not box.take_box():
            return None
        name = self._new_name(box, requests[0].clock)
        floor = last_version()
        letter = pack(requests, floor)
        if letter is None or len(letter) > LETTER_BYTES_MAX:
            return None
        for number, request in enumerate(requests):
            request.mark, request.floor = mark_of(name, number), floor
        box.leave(name, letter)
        with self._watching():
            answer = self._await_answer(box)
        try:
            return None if answer is None else unpack_answer(answer, requests)
        except UNREADABLE:
            return None  # The log tells whether they were made.

    def _lead(self, box: Letterbox) -> bool:
        """Take the lead, if it is free, and wait a little for as many letters as there were lately."""
        self._leads = True  # Before it has: `step_down` gives up what an interruption leaves half taken.
        self._leads = box.try_lead()
        if self._leads:
            for _ in range(LINGERS_MAX):
                if len(box.unanswered()) >= self._company:
                    break
                self._pause.wait(LINGER_S)
            known, self._left = self._left, box.left()
            self._company = box.left_since(known)
        return self._leads

    def _await_answer(self, box: Letterbox) -> bytes | None:
        """Wait for the answer; None if this process has the lead by now, or should go on without it."""
        for _ in range(WORDS_MAX):
            if self._lead(box):
                return None
            box.await_word(WORD_WAIT_S)
            answer = box.answer()
            if answer is not None:
                return answer
        return None

    def take_back(self) -> None:
        """Commit alone what was handed in. Under LMDB's write lock."""
        if self._box is not None:
            self._box.take_back()

    def letters(self, clock: Clock) -> list[Letter]:
        """Return what others wait for. Under LMDB's write lock."""
        found = []
        if self._leads and self._box is not None:
            for box, name, text in self._box.letters():
                try:
                    found.append(Letter(box, name, unpack(name, text, clock)))
                except UNREADABLE:
                    continue  # Another version's; it will come round to it itself.
        return found

    def answer(self, letter: Letter, outcomes: Sequence[Outcome]) -> None:
        """Tell who left a letter what became of its commits, once that is durable."""
        assert self._box is not None
        self._box.put_answer(letter.box, letter.name, pack_answer(outcomes))

    def step_down(self) -> None:
        """Give up the lead, if this process has it, and call the next."""
        if self._leads and self._box is not None:
            self._box.step_down()
            self._leads = False
            for box in self._box.unanswered()[:1]:
                self._box.say_word(box)

    def close(self) -> None:
        """Give the box back, and take no other."""
        self._impossible = True
        self.forget()

    def forget(self) -> None:
        """Let go of the box; in a forked child it is the parent's."""
        if self._box is not None:
            self._box.close()
            self._box = None
            self._count = 0

    def _opened(self) -> Letterbox | None:
        if self._box is None and not self._impossible:
            try:
                self._box = Letterbox(self._store)
            except (OSError, ValueError):  # No room, no right: this process commits alone, as ever.
                self._impossible = True
        return self._box

    def _new_name(self, box: Letterbox, clock: Clock) -> bytes:
        """Return a name that no letter has had, of this store: the box, and a count up from when it was taken."""
        self._count = self._count + 1 if self._count else clock.now_us()
        return bytes([box.number]) + self._count.to_bytes(NAME_BYTES - 1, "big")
