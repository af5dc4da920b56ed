"""Cross-process group commit: processes that wait at the same time share one LMDB transaction, and its fsync.

One process is leader. A process that cannot become leader is a follower: it posts its commit requests in its mailbox
slot and waits for a wake-up. The leader commits the posted requests with its own, answers them, and steps down. Then it
wakes one follower whose request came too late, which becomes the next leader.

Leadership and mailbox only save work; correctness does not depend on them. LMDB's write lock keeps commits apart. The
commit id in the commit log shows whether a commit was made. This holds whatever happens to a process:

    the leader is stopped             after a second the followers go on without a leader, and wait for LMDB's lock
    the leader dies, or its answer is lost
                                      leadership is free; each follower looks for its own commit id before it commits
    a request is found twice          the process that commits it looks for its commit id first
    a follower is interrupted         it looks for its commit id and commits before it raises
    a follower dies                   its request is discarded, or was committed a moment before
    a follower sleeps for five seconds, and the leader has died
                                      the log may no longer have the commit id: error 1021

A request is withdrawn, and a commit looked for or made, only under LMDB's write lock: one process at a time does so.
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

# A follower waits this long for a wake-up. After that the leader may have died, or be in another container.
WAKEUP_WAIT_S: Final = 0.002
WAKEUP_WAITS_MAX: Final = 500  # After this many waits without an answer the leader is perhaps stopped.

# A process that got its answer is back with its next commit within this time. A leader waits for it only if others have
# posted requests since this process led before. So two processes share each commit, and do not alternate.
LINGER_S: Final = 5e-5
LINGERS_MAX: Final = 3


class RequestBatch:
    """The commit requests of another process, with the slot and the name that an answer needs."""

    __slots__ = ("name", "requests", "slot")

    def __init__(self, slot: int, name: bytes, requests: list[CommitRequest]) -> None:
        self.slot = slot
        self.name = name
        self.requests = requests


class CrossProcessCommit:
    """The part of one process in the cross-process group commit of a store.

    One thread at a time uses it: the leader of the process's own group (`group_commit`).
    """

    def __init__(self, store: Path, watched_wait: Callable[[], AbstractContextManager[None]]) -> None:
        """Open nothing yet. `watched_wait`: the context of each wait for another process (`LockWatchdog`)."""
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
        """Become leader, or let the leader commit.

        Returns the outcomes if the leader made the commits. Returns None if the caller must make them now.

        Args:
          last_version: returns the version of the last commit. Called only if the requests are posted.
        """
        mailbox = self._open_mailbox()
        if mailbox is None:
            return None
        if self._try_to_lead(mailbox) or not mailbox.acquire_slot():
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
            return None  # The log shows whether they were made.

    def _try_to_lead(self, mailbox: Mailbox) -> bool:
        """Become leader if there is none, and wait a moment for as many followers as there were lately."""
        self._is_leader = True  # Set first, so that `step_down` releases a lock that an interruption left taken.
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
        """Return the answer; None if this process has become leader, or should go on without a leader."""
        for _ in range(WAKEUP_WAITS_MAX):
            if self._try_to_lead(mailbox):
                return None
            mailbox.await_wakeup(WAKEUP_WAIT_S)
            answer = mailbox.answer()
            if answer is not None:
                return answer
        return None

    def withdraw(self) -> None:
        """Withdraw the posted requests, for this process to commit itself. Only under LMDB's write lock."""
        if self._mailbox is not None:
            self._mailbox.withdraw()

    def batches(self, clock: Clock) -> list[RequestBatch]:
        """Return the posted requests of the followers, if this process is leader. Only under LMDB's write lock."""
        found = []
        if self._is_leader and self._mailbox is not None:
            for slot, name, packed in self._mailbox.batches():
                try:
                    found.append(RequestBatch(slot, name, unpack(name, packed, clock)))
                except UNDECODABLE:
                    continue  # Another version posted it; its process will commit it itself.
        return found

    def answer(self, batch: RequestBatch, outcomes: Sequence[Outcome]) -> None:
        """Send a follower the outcomes of its commits, once they are durable."""
        assert self._mailbox is not None
        self._mailbox.put_answer(batch.slot, batch.name, pack_answer(outcomes))

    def step_down(self) -> None:
        """Give up leadership, if this process has it, and wake the next leader."""
        if self._is_leader and self._mailbox is not None:
            self._mailbox.step_down()
            self._is_leader = False
            for slot in self._mailbox.unanswered()[:1]:
                self._mailbox.wake(slot)

    def close(self) -> None:
        """Release the slot, and take no other."""
        self._disabled = True
        self.reset()

    def reset(self) -> None:
        """Close the mailbox. In a forked child the slot stays the parent's."""
        if self._mailbox is not None:
            self._mailbox.close()
            self._mailbox = None
            self._count = 0

    def _open_mailbox(self) -> Mailbox | None:
        if self._mailbox is None and not self._disabled:
            try:
                self._mailbox = Mailbox(self._store)
            except (OSError, ValueError):  # No space, or no permission: this process commits without the others.
                self._disabled = True
        return self._mailbox

    def _new_name(self, mailbox: Mailbox, clock: Clock) -> bytes:
        """Return a name that no other batch of this store has: the slot, and a count from its first batch's time."""
        self._count = self._count + 1 if self._count else clock.now_us()
        return bytes([mailbox.slot]) + self._count.to_bytes(NAME_BYTES - 1, "big")
