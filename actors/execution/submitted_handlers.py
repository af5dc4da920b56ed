"""Submitted handlers: how code gets into a running fleet, and why a worker trusts it.

A handler is stored as cloudpickle, which is a program: write access to the store would mean to run code on the workers.
So a fleet without a signing key loads no handler. With a key, it unpickles only code that was signed with the same key
(HMAC-SHA256 over kind, version and code). Payloads are never pickled.
"""

import hmac
import importlib
import logging
import pickle
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import cloudpickle

from fairlead.actors.handlers import Handler, Registry, RemoteFunction, describe, handler_of
from fairlead.actors.runtime.host import Host
from fairlead.zones import submitted_handlers
from fairlead.zones.engines.api.progress import unsupervised
from fairlead.zones.errors import QueueError
from fairlead.zones.keyspace import pack_bytes, pack_int, pack_text
from fairlead.zones.records import HandlerRecord
from fairlead.zones.shard import Shard, kind_home
from fairlead.zones.transaction_runner import Attempt

log = logging.getLogger("fairlead.submitted")

LOAD_S = 2.0  # A new version is loaded within this time.


class HandlerNotPacked(QueueError):
    """The function refers to something that cannot be pickled: an open file, a lock, a connection.

    Do: create it inside the function, or import a module that holds it.
    """

    message = "the handler cannot be packed"


class RejectedHandler(NamedTuple):
    """A submitted handler that was not loaded, and why."""

    kind: str
    version: int
    reason: str


def pack_handler(kind: str, function: Callable[..., Any] | RemoteFunction, **options: Any) -> bytes:
    """Return a handler, checked, as bytes that `SubmittedHandlers` loads.

    The bytes contain those parts of the function's module to which the function refers.

    Raises:
      BadArgument, NotTransactional: see `handler_of`.
      HandlerNotPacked: it refers to something that cannot be pickled.
    """
    handler_of(kind, function, **options)
    module = sys.modules.get(getattr(function, "__module__", None) or "__main__")
    by_value = module is not None and module.__name__ not in cloudpickle.list_registry_pickle_by_value()
    if by_value:
        cloudpickle.register_pickle_by_value(module)
    try:
        return cloudpickle.dumps((function, options))  # type: ignore[no-any-return]
    except (TypeError, pickle.PicklingError, RecursionError) as error:
        raise HandlerNotPacked(kind=kind, handler=describe(function), reason=str(error)) from None
    finally:
        if by_value:
            cloudpickle.unregister_pickle_by_value(module)


def travels_by_value(module: str) -> bool:
    """Say whether what a module defines is pickled by value now: a program's main module, or that of `pack_handler`."""
    return module == "__main__" or module in cloudpickle.list_registry_pickle_by_value()


def signature(key: bytes, kind: str, version: int, code: bytes) -> bytes:
    """Return the HMAC-SHA256 of a handler under `key`; empty without a key: no fleet loads such a handler."""
    if not key:
        return b""
    return hmac.digest(key, pack_text(kind) + pack_int(version) + pack_bytes(code), "sha256")


def submit(shards: Mapping[str, Shard], kind: str, code: bytes, *, key: bytes) -> int:
    """Store a packed handler on the kind's home shard and return its version, higher than on any shard.

    Raises:
      BadArgument, HandlerTooLarge: see `fairlead.zones.submitted_handlers.submit`.
    """
    above = 0
    for shard in shards.values():
        known = shard.transact(lambda attempt: submitted_handlers.listing(attempt.tr))
        above = max([above, *(record.version for record in known if record.kind == kind)])

    def sign(kind: str, version: int, code: bytes) -> bytes:
        return signature(key, kind, version, code)

    at = shards[kind_home(kind, shards)]

    def body(attempt: Attempt) -> int:
        attempt.needs_receipt = True  # A repetition would store a version newer than those stored since.
        return submitted_handlers.submit(attempt.tr, kind, code, sign=sign, above=above, now_us=attempt.now_us)

    return at.transact(body)


@dataclass(slots=True)
class SubmittedHandlers:
    """The submitted handlers that a process has loaded into its registry.

    Args:
      registry: gets the handlers. The kinds that it has at first are the application's own, and are never replaced.
      key: the signing key; empty: there is none, and nothing is loaded.
      allow: False: nothing is loaded.
    """

    registry: Registry
    key: bytes = field(repr=False)
    allow: bool
    _own: frozenset[str] = field(init=False)
    _has_refused: bool = field(init=False, default=False)
    _versions: dict[str, int] = field(init=False, default_factory=dict)
    _untrusted: set[tuple[str, int]] = field(init=False, default_factory=set)  # Refused, because they are not signed.
    _unread: set[str] = field(init=False, default_factory=set)  # Shards whose last read failed.
    # Held while code is imported, and never during a read of a store, where the simulator switches tasks.
    _registering: threading.Lock = field(init=False, default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._own = frozenset(self.registry.handlers)

    def load(self, shards: Mapping[str, Shard]) -> list[RejectedHandler]:
        """Load handlers that are newer than those loaded before; return the refused ones, each version once.

        Without a key only the first handler found is refused, so that the log shows the reason. Reads each shard by
        snapshot; conflicts with nothing. A shard that refuses is logged once, and read again next time. Running jobs
        finish with the handler with which they started. Several threads may call this: when a call returns, what it
        found is loaded or refused, by whichever thread.
        """
        if not self.allow:
            return []
        newest: dict[str, HandlerRecord] = {}
        untrusted: list[HandlerRecord] = []
        for name, shard in shards.items():
            try:
                records = shard.transact(lambda attempt: submitted_handlers.listing(attempt.tr))
            except shard.db.errors as error:
                if name not in self._unread:
                    log.warning("shard %s refuses to list submitted handlers; retrying: %s", name, error)
                self._unread.add(name)
                continue
            self._unread.discard(name)
            for record in records:
                known = newest.get(record.kind)
                if not self._is_trusted(record):
                    untrusted.append(record)
                elif known is None or record.version > known.version:
                    newest[record.kind] = record
        if not self.key:
            return self._refused_without_key(untrusted)
        with (
            unsupervised(),
            self._registering,
        ):  # An import may take long, and so may the wait for one of another thread.
            refused = [self._refusal(record) for record in untrusted if self._is_first_refusal(record)]
            for record in newest.values():
                if record.version > self._versions.get(record.kind, 0):
                    self._versions[record.kind] = record.version
                    reason = self._register(record)
                    if reason is not None:
                        refused.append(RejectedHandler(record.kind, record.version, reason))
        return refused

    def _is_trusted(self, record: HandlerRecord) -> bool:
        """Say whether a record was signed with this fleet's key."""
        good = signature(self.key, record.kind, record.version, record.code)
        return bool(self.key) and hmac.compare_digest(record.signature, good)

    def _refused_without_key(self, found: list[HandlerRecord]) -> list[RejectedHandler]:
        """Return the first of the handlers found by a fleet without a key, once per process."""
        with self._registering:
            if self._has_refused or not found:
                return []
            self._has_refused = True
        reason = "this fleet has no signing key, and ignores all submitted handlers; set FAIRLEAD_SIGNING_KEY"
        return [RejectedHandler(found[0].kind, found[0].version, reason)]

    def _is_first_refusal(self, record: HandlerRecord) -> bool:
        """Say whether this version is refused for the first time, and remember it."""
        name = record.kind, record.version
        if name in self._untrusted:
            return False
        self._untrusted.add(name)
        return True

    def _refusal(self, record: HandlerRecord) -> RejectedHandler:
        reason = "it is not signed with this fleet's signing key" if record.signature else "it is not signed"
        return RejectedHandler(record.kind, record.version, reason)

    def _register(self, record: HandlerRecord) -> str | None:
        """Put a trusted record's handler into the registry; return the reason if that is impossible."""
        if record.kind in self._own:
            return "the application has a handler of its own for this kind"
        try:
            handler = self.registry.with_failure_hooks(_unpacked(record))
        except BaseException as error:  # noqa: BLE001 - unpickling runs a program of another author, which may exit
            return f"it cannot be loaded here: {type(error).__name__}: {error}"
        # A new table, because other threads may iterate over the old one.
        self.registry.handlers = {**self.registry.handlers, record.kind: handler}
        return None


def _unpacked(record: HandlerRecord) -> Handler:
    importlib.invalidate_caches()  # A module may have been installed since this process started.
    function, options = pickle.loads(record.code)
    return handler_of(record.kind, function, **options)


def load_submitted(handlers: SubmittedHandlers, shards: Mapping[str, Shard]) -> None:
    """Load handlers that are newer than those loaded before, and log the refused ones."""
    for refused in handlers.load(shards):
        log.warning("submitted handler refused, kind=%s version=%d: %s", *refused)


def handler_of_kind(kind: str, loaded: SubmittedHandlers, shards: Mapping[str, Shard]) -> Handler | None:
    """Return the handler of a kind. If it is not known, load first: the manager may have loaded it a moment before."""
    if kind not in loaded.registry.handlers:
        load_submitted(loaded, shards)
    return loaded.registry.handlers.get(kind)  # Read again: loading makes a new table.


def keep_loading(host: Host, handlers: SubmittedHandlers, shards: Mapping[str, Shard]) -> None:
    """Load submitted handlers every `LOAD_S`, for ever: the loop of an actor without housekeeping."""
    lock = host.lock()
    never = host.condition(lock)
    while True:
        with lock:
            never.wait(LOAD_S)
        if handlers.key:  # Without a key, the consumer's housekeeping logs for all its actors that nothing is loaded.
            load_submitted(handlers, shards)
