"""The lock keeper: the sessions by which a process keeps the locks that it holds outside of workflows (`tenant.lock`).

Each lock is held by an item, a hold (`fairlead.zones.workflow.holds`), which a session of this process claims. A shard
has one such session while the process holds locks there, and for some seconds longer: locks often follow one another. A
task of the process sends its heartbeat once a second. If the process dies, the heartbeats end, and a consumer ends the
session and the holds, which releases their locks.

If a consumer has ended the session of a process that stood still, the process claims under a new session what has not
been ended yet. The rest is lost.
"""

import logging
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from random import Random
from typing import Protocol, TypeVar

from fairlead.workflows.helping import AtHome
from fairlead.zones.engines import Transaction
from fairlead.zones.errors import LockLost, QueueError
from fairlead.zones.layout import ID_BYTES, Tenant
from fairlead.zones.pipelining import run_one
from fairlead.zones.queue import claims
from fairlead.zones.queue.items import Outcome
from fairlead.zones.shard import Shard
from fairlead.zones.top_level import worker_sessions
from fairlead.zones.top_level.worker_sessions import HEARTBEAT_US, SessionState, WorkerSession
from fairlead.zones.transaction_runner import Attempt
from fairlead.zones.workflow import holds
from fairlead.zones.workflow.holds import Hold

T = TypeVar("T")

log = logging.getLogger("fairlead.locks")

IDLE_HEARTBEATS = 5  # Without a lock, before the session ends.
JOIN_S = 10.0  # How long `close` waits for a heartbeat that is on its way; the store is closed afterwards.


class StopSignal(Protocol):
    """A signal that a task waits for; see `threading.Event`."""

    def set(self) -> None:
        """Give the signal."""
        ...

    def wait(self, timeout: float) -> bool:
        """Wait for the signal, at most so many seconds; return whether it was given."""
        ...


class KeeperTask(Protocol):
    """A task of the process."""

    def join(self, timeout: float) -> object:
        """Wait for the end of the task, at most so many seconds."""
        ...


class KeeperTasks(Protocol):
    """What the keeper needs of its process: threads, in production."""

    @property
    def incarnation(self) -> bytes | None:
        """The name by which others see whether this process has ended; None: they cannot."""
        ...

    def lock(self) -> AbstractContextManager[object]:
        """Return a lock for the tasks of this process."""
        ...

    def stop_signal(self) -> StopSignal:
        """Return a signal that has not been given."""
        ...

    def start(self, name: str, body: Callable[[], None]) -> KeeperTask:
        """Run `body` in a task that does not keep the process alive."""
        ...


class KeptHold:
    """A hold of this process.

    Attributes:
      hold: as it is stored.
      locks: the packed locks that it asks for, in the order in which they are taken.
      is_stored: a transaction that began the hold has committed.
      is_lost: the process is known to have it no more, though it has not released it.
      must_release: it is to be released; if that fails, it is tried again.
      is_releasing: a task is releasing it now. Another one that did so, too, would take it for lost.
      renewal_us: from when on its claim is renewed, microseconds since the epoch.
    """

    def __init__(self, hold: Hold, locks: list[bytes]) -> None:
        self.hold = hold
        self.locks = locks
        self.is_stored = self.is_lost = self.must_release = self.is_releasing = False
        self.renewal_us = 0


class _Session:
    """A session of this process on a shard, and the holds that it claims, by their ids."""

    def __init__(self, shard: Shard, session_id: bytes, stopped: StopSignal) -> None:
        self.shard = shard
        self.id = session_id
        self.has_begun = False
        self.holds: dict[bytes, KeptHold] = {}
        self.idle_heartbeats = 0
        self.stopped = stopped
        self.task: KeeperTask | None = None


class _SessionOver(Exception):
    """A consumer has ended the session."""


class LockKeeper:
    """The sessions of one application in this process. Safe to use from many tasks; a forked child has its own."""

    def __init__(self, at_home: AtHome, random: Random, tasks: KeeperTasks) -> None:
        self._at_home = at_home
        self._random = random
        self._tasks = tasks
        self._lock = tasks.lock()
        self._sessions: dict[str, _Session] = {}  # by the name of the shard
        self._pid = os.getpid()

    def new_lock(self) -> AbstractContextManager[object]:
        """Return a lock for the tasks of this process."""
        return self._tasks.lock()

    def new_hold(self, tenant: Tenant, locks: list[bytes]) -> KeptHold:
        """Return a hold that is not stored yet."""
        return KeptHold(Hold(tenant, self._random.randbytes(ID_BYTES), self._random.randbytes(ID_BYTES)), locks)

    def claim(self, shard: Shard, kept: KeptHold, claim: Callable[[Attempt, bytes], T]) -> T:
        """Run `claim(attempt, session_id)`, which claims a hold, in a transaction under the session of the shard.

        The session begins in it if it has not begun. `claim` may run several times, also after it was committed: if the
        session has been left meanwhile, the hold is claimed under the next one. `kept.is_stored` tells these apart.

        Raises:
          What `claim` raises, and the store. Then the hold may be claimed; `release` sees to that.
        """
        while True:
            session = self._join(shard, kept)
            try:
                result = self._commit(session, claim)
            except _SessionOver:
                self._abandon(session)
                continue
            finally:
                if not session.has_begun:  # If it has, unknown to this process, consumers find it silent.
                    self._abandon(session)
            kept.is_stored = True
            kept.renewal_us = shard.clock.now_us() + shard.layout.settings.max_item_lease_ms * 1000 // 2
            with self._lock:
                is_current = self._sessions.get(shard.name) is session
            if is_current:
                return result

    def _commit(self, session: _Session, claim: Callable[[Attempt, bytes], T]) -> T:
        """Run a transaction under a session. One whose beginning is of unknown result does not begin again."""
        shard, may_begin = session.shard, not session.has_begun

        def body(attempt: Attempt) -> T:
            state = run_one(worker_sessions.session_state_op(attempt.tr, session.id, begins=may_begin))
            if state is SessionState.OVER:
                raise _SessionOver
            result = claim(attempt, session.id)
            if state is SessionState.NEW:
                incarnation = self._tasks.incarnation or session.id
                begun = WorkerSession(incarnation, attempt.now_us)
                worker_sessions.begin(attempt.tr, session.id, begun, beat=attempt.new_id())
            return result

        def applied(_: Transaction) -> bool:
            """Return False: the body finds out. From now on this call may have begun the session."""
            nonlocal may_begin
            may_begin = False
            return False

        result = shard.transact(body, applied=applied)
        session.has_begun = True
        return result

    def release(self, kept: KeptHold) -> None:
        """Release all locks of a hold, and end it, in one transaction. If the store refuses, it is tried again later.

        Raises:
          LockLost: the process has it no more.
          What the store raises.
        """
        kept.is_releasing = kept.must_release = True  # In this order: see `_send_heartbeat`.

        def body(attempt: Attempt, shard: Shard) -> None:
            location = kept.hold.location(shard.layout)
            holds.release(attempt.tr, location, kept.hold, kept.locks, now_us=attempt.now_us)

        def is_gone(tr: Transaction, shard: Shard) -> bool:
            return not tr.get(kept.hold.location(shard.layout).keys.item(kept.hold.item_id)).present()

        def release_on(shard: Shard) -> None:
            shard.transact(partial(body, shard=shard), applied=partial(is_gone, shard=shard))

        try:
            self._at_home(kept.hold.tenant, release_on)
        except LockLost:
            self.forget(kept)
            raise
        finally:
            kept.is_releasing = False
        self.forget(kept)

    def close(self) -> None:
        """Release all locks that are still held, and end all sessions. What a store refuses, consumers do."""
        with self._lock:
            sessions, self._sessions = self._sessions, {}
        if self._pid != os.getpid():
            return
        for session in sessions.values():
            session.stopped.set()
            if session.task is not None:
                session.task.join(JOIN_S)
            for kept in list(session.holds.values()):
                kept.is_lost = True
                self._give_up(kept, session.shard)
            self._end(session)

    def _give_up(self, kept: KeptHold, shard: Shard) -> None:
        errors: tuple[type[Exception], ...] = (QueueError, *shard.db.errors)
        try:
            self.release(kept)
        except errors as error:
            log.warning("a lock is not released at the end of this application: %s", error)

    # --- Heartbeats ---

    def _keep(self, session: _Session) -> None:
        """Send the heartbeats of a session until it ends."""
        errors: tuple[type[Exception], ...] = (QueueError, *session.shard.db.errors)
        while not session.stopped.wait(HEARTBEAT_US / 1e6):
            if not session.has_begun:
                continue
            try:
                self._send_heartbeat(session)
            except errors as error:
                log.warning("shard %s refuses; the locks of this process may be lost: %s", session.shard.name, error)

    def _send_heartbeat(self, session: _Session) -> None:
        """Send a heartbeat, and see whether the holds still are claims of the session: a tenant may have moved."""
        shard = session.shard
        with self._lock:
            kept_now = [kept for kept in session.holds.values() if kept.is_stored or kept.must_release]
        claimed: set[bytes] = set()

        def body(attempt: Attempt) -> bool:
            tr, beat = attempt.tr, attempt.new_id()
            if run_one(worker_sessions.heartbeat_op(tr, shard.layout, session.id, beat=beat)) is None:
                return False
            found = [(kept.hold, holds.claim_of(tr, kept.hold.location(shard.layout), kept.hold)) for kept in kept_now]
            claimed.update(hold.item_id for hold, session_id in found if session_id == session.id)
            return True

        is_alive = shard.transact(body)
        with self._lock:
            session.idle_heartbeats = 0 if session.holds else session.idle_heartbeats + 1
            ends = not is_alive or session.idle_heartbeats >= IDLE_HEARTBEATS
            if ends:  # At once: a claim that comes now begins the next session.
                self._drop(session)
        if ends and is_alive:
            self._end(session)
        now_us = shard.clock.now_us()
        for kept in kept_now:
            if kept.must_release:
                if not kept.is_releasing:
                    self._release_again(kept)
            elif not is_alive or kept.hold.item_id not in claimed or now_us >= kept.renewal_us:
                self._claim_again(kept)

    def _release_again(self, kept: KeptHold) -> None:
        try:
            self.release(kept)
        except LockLost:
            log.info("locks were released already, item=%s", kept.hold.item_id.hex())

    def _claim_again(self, kept: KeptHold) -> None:
        """Claim a hold under the present session, where its tenant lives, if nobody has leased it."""
        if not kept.is_stored:
            return

        def claim(attempt: Attempt, session_id: bytes, shard: Shard) -> Outcome:
            location, ref = kept.hold.location(shard.layout), (kept.hold.item_id, kept.hold.lease_id)
            operation = claims.claim_op(attempt.tr, location, [ref], session_id=session_id, now_us=attempt.now_us)
            return run_one(operation)[0]

        def claim_on(shard: Shard) -> Outcome:
            return self.claim(shard, kept, partial(claim, shard=shard))

        if self._at_home(kept.hold.tenant, claim_on) is not Outcome.DONE and not kept.must_release:
            kept.is_lost = True
            self.forget(kept)
            log.warning("a lock is lost: this process was taken for dead, item=%s", kept.hold.item_id.hex())

    def _end(self, session: _Session) -> None:
        """End a session in one try. If the store refuses, consumers find it silent."""
        try:
            session.shard.transact(
                lambda attempt: run_one(worker_sessions.end_session_op(attempt.tr, session.id)), retries_max=1
            )
        except session.shard.db.errors as error:
            log.info("shard %s refuses to end a session of locks: %s", session.shard.name, error)

    # --- Bookkeeping ---

    def _join(self, shard: Shard, kept: KeptHold) -> _Session:
        """Return the session of a shard, which is about to claim a hold; make one if there is none."""
        with self._lock:
            if self._pid != os.getpid():  # The tasks and the sessions are the parent's.
                self._pid, self._sessions = os.getpid(), {}
            session = self._sessions.get(shard.name)
            if session is None or session.shard is not shard:
                session = _Session(shard, self._random.randbytes(ID_BYTES), self._tasks.stop_signal())
                self._sessions[shard.name] = session
                session.task = self._tasks.start(f"fairlead-locks-{shard.name}", partial(self._keep, session))
            for other in self._sessions.values():
                other.holds.pop(kept.hold.item_id, None)
            session.holds[kept.hold.item_id] = kept
            session.idle_heartbeats = 0
            return session

    def _abandon(self, session: _Session) -> None:
        """Let the next claim begin a session."""
        with self._lock:
            self._drop(session)

    def _drop(self, session: _Session) -> None:
        """See `_abandon`. The lock is held."""
        if self._sessions.get(session.shard.name) is session:
            del self._sessions[session.shard.name]
        session.stopped.set()

    def forget(self, kept: KeptHold) -> None:
        """Keep a hold no more: it is not stored."""
        with self._lock:
            for session in self._sessions.values():
                session.holds.pop(kept.hold.item_id, None)
