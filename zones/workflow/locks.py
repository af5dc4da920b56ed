"""Locks that workflows take: a run that holds one will release it, whatever dies (Olive section 3: locks with intent).

A lock lies below its tenant, beside what it protects. It is a line of *requests*, in the order in which runs asked. The
first request holds the lock. If it is shared, so do the shared requests behind it, up to the first that is not. All
others wait. A request names its run, the item of the run, and the item's tenant, which may live on another shard.

Taking and releasing are steps of the run. So the lease of its item, or the fence on another shard, keeps late attempts
from doing either. A request ends with its run, and a dead letter keeps its requests: its run has not ended. Locks are
advisory: they exclude workflows that take them, and transactions that call `require_unlocked`.

    below a tenant                 value
    LOCK, LINE, lock, number       `LockRequest`
    LOCK, OF_RUN, run, lock        the number of the run's request, 8 bytes

The transactions. Each also reads the tenant's owner with conflict; a step reads its entry, and the lease or the fence.

                       reads with conflict                       writes
    take               OF_RUN of the run and the lock;           the request behind all others; OF_RUN
                       the last request of the line
    require unlocked   the first two requests of the line        -
    release            OF_RUN of the run and the lock;           request and OF_RUN cleared; what `hand over` writes
                       what `hand over` reads
    hand over          the line up to the first request that     each request that holds the lock from now on; the
                       goes on waiting                           signal that its run waits for, or a delivery item
    end of a run       OF_RUN of the run; as `release`           as `release`, for each; delivery items only
    clean up           OF_RUN of the run, at a participant;      likewise
                       as `release`

No request waits at a lock that nobody holds. Whatever removes a request hands the lock over in the same transaction,
and a request that is added conflicts with the removal of the one before it. A run that waits is signalled once, in the
transaction that gives it the lock; `arrival` says why it does not miss that. A process that waits outside of a workflow
watches its request. The end of a run removes its requests at
home, and the cleanup, later, elsewhere. If such a request gets the lock meanwhile, the cleanup hands it on.

The end of a run signals by delivery items only: its transaction may also write the records of the items that it would
wake.
"""

import json
from collections.abc import Iterator
from contextlib import suppress
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from fairlead.zones import tuples
from fairlead.zones.engines import Reader, Transaction
from fairlead.zones.errors import BadArgument, Busy, ItemGone, ItemUnreadable
from fairlead.zones.keyspace import TenantKeys, pack_bytes, pack_int, range_begin, range_end, unpack_bytes, unpack_int
from fairlead.zones.layout import ID_BYTES, Tenant, ZoneLocation
from fairlead.zones.ownership import check_owner
from fairlead.zones.pipelining import Operation, run_one
from fairlead.zones.probes import probe
from fairlead.zones.queue import insertion
from fairlead.zones.records import Kind, TimeUs, pack_value, unpacked
from fairlead.zones.workflow import signals
from fairlead.zones.workflow.run_records import unreadable

_LINE, _OF_RUN = pack_int(1), pack_int(2)
NUMBER_BYTES = 8
LOCK_SIGNAL = "fairlead.lock "  # Begins the names of the signals by which locks are handed over.
HOLD_KIND = "fairlead.hold"  # Of the items by which processes hold locks outside of workflows; see `holds`.
LOCK_BYTES_MAX = 240  # Of a packed lock key, escaped: LMDB's keys end at 511 bytes.
LINE_PAGE = 16  # Requests that are read at once when a lock is handed over: mostly one of them gets it.
GRANTS_MAX = 100  # Readers that get a lock in one transaction; each that releases it lets more in.

LockKey = tuple[Any, ...]


class LockRequest(msgspec.Struct, array_like=True, frozen=True):
    """What a run has asked for.

    Attributes:
      app, user, zone, item_id: of the run's item.
      kind: of the item, for people.
      shared: it holds the lock together with others that are shared.
      signal: the name of the signal that its run waits for, if it waits. No other request has it.
      asked_us: when it asked.
      held_us: since when it holds the lock; None: it waits.
      process: in words, the process that asks for the lock outside of a workflow, by an item of `holds`; empty: the
        item is a workflow. Nobody signals a process: it watches its request.
    """

    app: str
    user: str
    zone: str
    item_id: bytes
    run: bytes
    kind: Kind
    shared: bool
    signal: str
    asked_us: TimeUs
    held_us: TimeUs | None = None
    process: str = ""

    @property
    def tenant(self) -> Tenant:
        """The tenant of the run's item."""
        return Tenant(self.app, self.user)

    @property
    def holder(self) -> str:
        """Who has asked, in words: the process, or the item."""
        return self.process or f"{self.tenant} {self.item_id.hex()}"


class AskedTwice(Exception):
    """The run has a request of the lock by another step."""


class StoredRequest(NamedTuple):
    """A request, or `None` if it cannot be read, of a lock, by its packed key, with its place in the line."""

    lock: bytes
    number: int
    request: LockRequest | None


_decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(LockRequest)


def decode_request(value: bytes) -> LockRequest | None:
    """Return a request as it is stored; None: it is damaged, or of a newer version."""
    request: LockRequest | None = unpacked(_decoder, value)
    return request


def pack_lock(key: Any) -> bytes:
    """Return a lock's key as it is stored.

    Raises:
      BadArgument: it is no tuple, is empty, holds what no key can hold, or is too long.
    """
    if not isinstance(key, tuple) or not key:
        raise BadArgument(argument="key", value=key, allowed='a tuple that is not empty, such as ("account", 7)')
    try:
        packed: bytes = tuples.pack(key)
    except (ValueError, AttributeError) as error:  # AttributeError: a Versionstamp, without the client library
        raise BadArgument(argument="key", value=key, allowed="a tuple of data", reason=str(error)) from None
    if len(pack_bytes(packed)) > LOCK_BYTES_MAX:
        raise BadArgument(argument="key", value=key, allowed=f"a tuple that packs into {LOCK_BYTES_MAX} bytes")
    return packed


def shown_lock(packed: bytes) -> str:
    """Return a lock's key as people write it: `("account", 7)`."""
    elements = tuples.elements_of(packed)
    return _shown(elements) if elements else packed.hex()


def _shown(element: object) -> str:
    if isinstance(element, str):
        return json.dumps(element, ensure_ascii=False)
    if isinstance(element, tuple):
        return f"({', '.join(map(_shown, element))}{',' if len(element) == 1 else ''})"
    return repr(element)


# --- Keys ---


def line_prefix(keys: TenantKeys, lock: bytes) -> bytes:
    """Return the prefix of the requests of a lock."""
    return keys.locks + _LINE + pack_bytes(lock)


def of_run_prefix(keys: TenantKeys, run: bytes) -> bytes:
    """Return the prefix of the keys that lead from a run to its requests."""
    return keys.locks + _OF_RUN + pack_bytes(run)


def of_run_key(keys: TenantKeys, run: bytes, lock: bytes) -> bytes:
    """Return the key of the number of a run's request of a lock."""
    return of_run_prefix(keys, run) + pack_bytes(lock)


def request_key(keys: TenantKeys, lock: bytes, number: int) -> bytes:
    """Return the key of a request by its place in the line of a lock."""
    return line_prefix(keys, lock) + pack_int(number)


def number_of(value: bytes) -> int | None:
    """Return the place in the line to which a key of a run leads; None: the value is damaged."""
    return int.from_bytes(value, "big") if len(value) == NUMBER_BYTES else None


def _number_at(key: bytes, at: int) -> int:
    found = unpack_int(key, at)
    return -1 if found is None else found[0]


# --- Taking and releasing ---


def take_op(tr: Transaction, location: ZoneLocation, lock: bytes, request: LockRequest) -> Operation[bool]:
    """Add a request at the end of a lock's line; return whether it holds the lock. May run twice.

    A run that waits is signalled when it gets the lock. `location`: any zone of the lock's tenant. `request`: as one
    that waits. If the same step has added it before, nothing is written.

    Reads with conflict: ownership, the key that leads from the run to its request; the last request of the line, or the
    whole range of an empty line. Writes: the request, and that key.

    Raises:
      AskedTwice: the run has a request of the lock already, by another step.
      RunUnreadable: the request that the run has cannot be read, or is not there.
      TenantMoved: another shard owns the lock's tenant.
    """
    keys, prefix = location.keys.tenant, line_prefix(location.keys.tenant, lock)
    owner, number = tr.get(keys.owner), tr.get(of_run_key(keys, request.run, lock))
    last_rows = tr.get_range(range_begin(prefix), range_end(prefix), limit=1, reverse=True)
    yield
    check_owner(tr, location.layout, keys, owner.value)
    if number.value is not None:
        place = number_of(number.value)
        if place is None:
            raise unreadable(of_run_key(keys, request.run, lock), number.value)
        key = request_key(keys, lock, place)
        value = tr.get(key).value or b""
        mine = decode_request(value)
        if mine is None:
            raise unreadable(key, value)
        if mine.signal != request.signal:
            raise AskedTwice
        return mine.held_us is not None
    last = next(iter(last_rows), None)
    added = 0 if last is None else _number_at(last.key, len(prefix)) + 1
    behind = None if last is None else decode_request(last.value)
    joins = request.shared and behind is not None and behind.shared and behind.held_us is not None
    is_held = last is None or joins
    if not is_held:
        probe("a lock is taken: its request waits")
    stored = msgspec.structs.replace(request, held_us=request.asked_us if is_held else None)
    tr.set(request_key(keys, lock, added), pack_value(stored))
    tr.set(of_run_key(keys, request.run, lock), added.to_bytes(NUMBER_BYTES, "big"))
    return is_held


def release_op(tr: Transaction, location: ZoneLocation, lock: bytes, run: bytes, *, now_us: int) -> Operation[None]:
    """Remove a run's request of a lock, and hand the lock over to who is first in line. May run twice.

    A run that waits, and whose item lies below the lock's tenant, is signalled at once; another one by a delivery item.
    `location`: any zone of the lock's tenant.

    Reads with conflict: ownership, the key that leads from the run to its request, the line up to the first request
    that goes on waiting; see `signals.send_op`, and what an enqueue reads. Writes: request and key (cleared), the
    requests that hold the lock from now on; and see there.

    Raises:
      TenantMoved: another shard owns the lock's tenant.
    """
    keys = location.keys.tenant
    owner, number = tr.get(keys.owner), tr.get(of_run_key(keys, run, lock))
    yield
    check_owner(tr, location.layout, keys, owner.value)
    if number.value is not None:
        yield from _remove_op(tr, location, lock, run, number.value, signals_directly=True, now_us=now_us)


def has_requests(tr: Transaction, keys: TenantKeys, run: bytes) -> Any:
    """Read whether a run has requests below a tenant: return a range of one row, which is empty if it has none."""
    prefix = of_run_prefix(keys, run)
    return tr.get_range(range_begin(prefix), range_end(prefix), limit=1)


def release_all(tr: Transaction, location: ZoneLocation, run: bytes, *, now_us: int) -> None:
    """Remove all requests that a run which has ended has below a tenant; see `release_op`. May run twice.

    It waits for its reads, so that no other operation of the transaction comes between them and the writes: that one
    may remove requests of the same lines. Runs are signalled by delivery items alone: that one may end such a run.
    """
    prefix = of_run_prefix(location.keys.tenant, run)
    for row in list(tr.get_range(range_begin(prefix), range_end(prefix))):
        lock = unpack_bytes(row.key[len(prefix) :])
        run_one(_remove_op(tr, location, lock, run, row.value, signals_directly=False, now_us=now_us))
        tr.clear(row.key)


def hand_over(tr: Transaction, location: ZoneLocation, lock: bytes, *, now_us: int) -> None:
    """Give a lock to who is first in line, for a repair; see `release_all`."""
    run_one(_hand_over_op(tr, location, lock, signals_directly=False, now_us=now_us))


def _remove_op(
    tr: Transaction,
    location: ZoneLocation,
    lock: bytes,
    run: bytes,
    number: bytes,
    *,
    signals_directly: bool,
    now_us: int,
) -> Operation[None]:
    """Remove a request. If its number is damaged, it stays until a check finds that its run does not lead to it."""
    keys, place = location.keys.tenant, number_of(number)
    if place is not None:
        tr.clear(request_key(keys, lock, place))
    tr.clear(of_run_key(keys, run, lock))
    yield from _hand_over_op(tr, location, lock, signals_directly=signals_directly, now_us=now_us)


def _hand_over_op(
    tr: Transaction, location: ZoneLocation, lock: bytes, *, signals_directly: bool, now_us: int
) -> Operation[None]:
    """Give a lock to the requests at the head of its line that can hold it, and do not yet.

    A request that cannot be read ends the search: the end of its run removes it. So does the `GRANTS_MAX`-th.
    """
    prefix = line_prefix(location.keys.tenant, lock)
    begin, end = range_begin(prefix), range_end(prefix)
    is_first, granted_count = True, 0
    while True:
        rows = list(tr.get_range(begin, end, limit=LINE_PAGE))
        for row in rows:
            request = decode_request(row.value)
            if request is None or not (is_first or request.shared):
                return
            if request.held_us is None:
                if granted_count == GRANTS_MAX:
                    return
                granted_count += 1
                probe("a lock is handed over")
                tr.set(row.key, pack_value(msgspec.structs.replace(request, held_us=now_us)))
                yield from _signal_op(tr, location, request, directly=signals_directly, now_us=now_us)
            if not request.shared:
                return
            is_first = False
        if len(rows) < LINE_PAGE:
            return
        begin = rows[-1].key + b"\x00"


def _signal_op(
    tr: Transaction, location: ZoneLocation, request: LockRequest, *, directly: bool, now_us: int
) -> Operation[None]:
    """Signal a run that it holds a lock. Its request is on the way out if its item is gone: the signal is dropped."""
    if request.process:
        return
    if directly and request.tenant == location.tenant:
        receiver = location.layout.location(request.tenant, request.zone)
        packed = signals.pack_signal(request.signal, None)
        with suppress(ItemGone, ItemUnreadable):  # Both are raised before anything is written.
            yield from signals.send_op(tr, receiver, request.item_id, request.signal, packed, number=0, now_us=now_us)
            return
    probe("a lock is handed over by a delivery item")
    delivery = signals.delivery_of(request.tenant, request.zone, request.item_id, request.signal, None)
    delivery_id = blake2b(request.signal.encode() + request.run, digest_size=ID_BYTES).digest()
    yield from insertion.enqueue_op(tr, location, [(delivery_id, delivery)], now_us=now_us, ids_are_new=False)


# --- Looking ---


def holder_op(
    tr: Transaction, location: ZoneLocation, lock: bytes, *, besides: bytes | None
) -> Operation[LockRequest | None]:
    """Return the request of another run that holds a lock; None: nobody else does. `besides`: the caller's own run.

    Reads with conflict: ownership, the first two requests of the line. Nothing is written.

    Raises:
      RunUnreadable: a request cannot be read.
      TenantMoved: another shard owns the lock's tenant.
    """
    keys, prefix = location.keys.tenant, line_prefix(location.keys.tenant, lock)
    owner, rows = tr.get(keys.owner), tr.get_range(range_begin(prefix), range_end(prefix), limit=2)
    yield
    check_owner(tr, location.layout, keys, owner.value)
    for row in rows:
        request = decode_request(row.value)
        if request is None:
            raise unreadable(row.key, row.value)
        if request.run != besides and request.held_us is not None:
            return request
    return None


def busy(lock: bytes, holder: LockRequest, *, now_us: int) -> Busy:
    """Return the error for a lock that another one holds. `holder`: its request."""
    held_s = max(0, now_us - (holder.held_us or now_us)) / 1e6
    return Busy(lock=shown_lock(lock), by=holder.holder, kind=holder.kind, held_for=held_s)


def requests_of_run(tr: Reader, keys: TenantKeys, run: bytes) -> list[StoredRequest]:
    """Return the requests that a run has below a tenant. Snapshot reads: one range, and one key for each."""
    prefix = of_run_prefix(keys, run)
    found = []
    for row in tr.snapshot.get_range(range_begin(prefix), range_end(prefix)):
        lock, number = unpack_bytes(row.key[len(prefix) :]), number_of(row.value)
        if number is None:
            continue
        value = tr.snapshot.get(request_key(keys, lock, number)).value
        found.append(StoredRequest(lock, number, None if value is None else decode_request(value)))
    return found


def first_requests(tr: Reader, keys: TenantKeys, lock: bytes, *, requests_max: int) -> list[StoredRequest]:
    """Return the first requests of a lock's line. One snapshot read."""
    prefix = line_prefix(keys, lock)
    rows = tr.snapshot.get_range(range_begin(prefix), range_end(prefix), limit=requests_max)
    return [StoredRequest(lock, _number_at(row.key, len(prefix)), decode_request(row.value)) for row in rows]


def all_requests(tr: Reader, keys: TenantKeys, *, requests_max: int) -> Iterator[StoredRequest]:
    """Yield the requests of a tenant's locks, lock by lock, each line in its order. One snapshot read."""
    prefix = keys.locks + _LINE
    for row in tr.snapshot.get_range(range_begin(prefix), range_end(prefix), limit=requests_max):
        match tuples.elements_of(row.key)[-2:]:
            case (bytes(lock), int(number)):
                yield StoredRequest(lock, number, decode_request(row.value))
