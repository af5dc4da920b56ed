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
    UNDECODABLE,
    commit_id_of,
    pack,
    pack_answer,
    unpack,
    unpack_answer,
)
from fairlead.zones.engines.embedded.cross_process.mailbox import BATCH_BYTES_MAX, NAME_BYTES, Mailbox
from fairlead.zones.engines.optimistic.commit import CommitRequest, Outcome

# A word that does not come is waited for so long; then whoever leads may have died, or is in another container.
WAKEUP_WAIT_S: Final = 0.002
WAKEUP_WAITS_MAX: Final = 500  # And after so many in vain it is stopped, perhaps.

# The time in which a process that has been answered is back with its next commit. Only as long as others have left
# letters since this process had the lead before; so two take turns no more, and do in one commit what took two.
LINGER_S: Final = 5e-5
LINGERS_MAX: Final = 3


class RequestBatch:
    """A letter of another process: where to answer, and what it asks for."""

    __slots__ = ("name", "requests", "slot")

    def __init__(self, slot: int, name: bytes, requests: list[CommitRequest]) -> None:
        self.slot = slot
        self.name = name
        self.requests = requests


class CrossProcessCommit:
    """This process's part in the joint commits of a store. One thread at a time: the leader of its group."""

    def __init__(self, store: Path, watched_wait: Callable[[], AbstractContextManager[None]]) -> None:
        """Do nothing yet. `watched_wait`: what to wait within."""
        self._store = store
        self._watched_wait = watched_wait
        self._mailbox: Mailbox | None = None
        self._disabled = sys.platform != "linux"
        self._is_leader = False
        self._pause = threading.Event()  # never set
        self._last_batch_names = b""
        self._recent_followers = 0
        self._count = 0

    def submit(self, requests: Sequence[CommitRequest], last_version: Callable[[], int]) -> list[Outcome] | None:
        """Take the lead, or let who has it commit; return what became of the commits, or None: commit them now.

        Args:
          last_version: answers with the version of the last commit; asked only if these are handed in.
        """
        mailbox = self._open_mailbox()
        if mailbox is None:
            return None
        if self._lead(mailbox) or not mailbox.acquire_slot():
            return None
        name = self._new_name(mailbox, requests[0].clock)
        floor = last_version()
        batch = pack(requests, floor)
        if batch is None or len(batch) > BATCH_BYTES_MAX:
            return None
        for number, request in enumerate(requests):
            request.commit_id, request.floor = commit_id_of(name, number), floor
        mailbox.post(name, batch)
        with self._watched_wait():
            answer = self._await_answer(mailbox)
        try:
            return None if answer is None else unpack_answer(answer, requests)
        except UNDECODABLE:
            return None  # The log tells whether they were made.

    def _lead(self, mailbox: Mailbox) -> bool:
        """Take the lead, if it is free, and wait a little for as many letters as there were lately."""
        self._is_leader = True  # Before it has: `step_down` gives up what an interruption leaves half taken.
        self._is_leader = mailbox.try_become_leader()
        if self._is_leader:
            for _ in range(LINGERS_MAX):
                if len(mailbox.unanswered()) >= self._recent_followers:
                    break
                self._pause.wait(LINGER_S)
            known, self._last_batch_names = self._last_batch_names, mailbox.batch_names()
            self._recent_followers = mailbox.count_followers_since(known)
        return self._is_leader

    def _await_answer(self, mailbox: Mailbox) -> bytes | None:
        """Wait for the answer; None if this process has the lead by now, or should go on without it."""
        for _ in range(WAKEUP_WAITS_MAX):
            if self._lead(mailbox):
                return None
            mailbox.await_wakeup(WAKEUP_WAIT_S)
            answer = mailbox.answer()
            if answer is not None:
                return answer
        return None

    def withdraw(self) -> None:
        """Commit alone what was handed in. Under LMDB's write lock."""
        if self._mailbox is not None:
            self._mailbox.withdraw()

    def batches(self, clock: Clock) -> list[RequestBatch]:
        """Return what others wait for. Under LMDB's write lock."""
        found = []
        if self._is_leader and self._mailbox is not None:
            for slot, name, text in self._mailbox.batches():
                try:
                    found.append(RequestBatch(slot, name, unpack(name, text, clock)))
                except UNDECODABLE:
                    continue  # Another version's; it will come round to it itself.
        return found

    def answer(self, batch: RequestBatch, outcomes: Sequence[Outcome]) -> None:
        """Tell who left a letter what became of its commits, once that is durable."""
        assert self._mailbox is not None
        self._mailbox.put_answer(batch.slot, batch.name, pack_answer(outcomes))

    def step_down(self) -> None:
        """Give up the lead, if this process has it, and call the next."""
        if self._is_leader and self._mailbox is not None:
            self._mailbox.step_down()
            self._is_leader = False
            for slot in self._mailbox.unanswered()[:1]:
                self._mailbox.wake(slot)

    def close(self) -> None:
        """Give the box back, and take no other."""
        self._disabled = True
        self.reset()

    def reset(self) -> None:
        """Let go of the box; in a forked child it is the parent's."""
        if self._mailbox is not None:
            self._mailbox.close()
            self._mailbox = None
            self._count = 0

    def _open_mailbox(self) -> Mailbox | None:
        if self._mailbox is None and not self._disabled:
            try:
                self._mailbox = Mailbox(self._store)
            except (OSError, ValueError):  # No room, no right: this process commits alone, as ever.
                self._disabled = True
        return self._mailbox

    def _new_name(self, mailbox: Mailbox, clock: Clock) -> bytes:
        """Return a name that no letter has had, of this store: the box, and a count up from when it was taken."""
        self._count = self._count + 1 if self._count else clock.now_us()
        return bytes([mailbox.number]) + self._count.to_bytes(NAME_BYTES - 1, "big")
