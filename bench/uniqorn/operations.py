"""Requests as operations of the protocol, for whatever carries accesses out: threads and stores, or simulated time."""

from typing import NamedTuple

from bench.uniqorn.workload import Kind, Request
from fairlead.records.accesses import Op
from fairlead.records.alternate_keys import Field, pack_unique
from fairlead.records.protocol import Protocol
from fairlead.records.stored import DataRecord

PROTOCOL = Protocol()


def index_key(field: int, name: str) -> bytes:
    """Return the index key of a value of an alternate key."""
    return pack_unique(Field(f"ak{field}", is_unique=True), name)


def index_keys(request: Request) -> tuple[bytes, ...]:
    """Return the index keys of a request's record."""
    return tuple(index_key(field, name) for field, name in enumerate(request.names))


def wanted(request: Request) -> bytes:
    """Return the index key that a read or a delete names."""
    return index_key(request.field, request.names[request.field])


class Done(NamedTuple):
    """How a request has ended.

    Attributes:
      found: whether there was a record to read, to update or to delete. If not, the request was one read.
      cleanup: what nobody need wait for: the deletion of index records that it leaves.
    """

    found: bool = True
    cleanup: Op[object] | None = None


NOTHING = Done(found=False)


def request_op(request: Request) -> Op[Done]:
    """Carry a request out. Raises what the protocol does."""
    match request.kind:
        case Kind.CREATE:
            yield from PROTOCOL.create_op(request.key, index_keys(request), request.value, request.generation)
            return Done()
        case Kind.CREATE_BARE:
            record = yield from PROTOCOL.create_op(request.key, (), request.value, request.generation)
            return Done(cleanup=PROTOCOL.delete_op(request.key, record))
        case Kind.READ:
            return Done((yield from PROTOCOL.find_op(wanted(request))) is not None)
        case Kind.UPDATE | Kind.UPDATE_VALUE:
            read = yield from PROTOCOL.get_op(request.key)
            return NOTHING if read is None else (yield from _update_op(request, read))
        case Kind.DELETE:
            found = yield from PROTOCOL.find_op(wanted(request))
            return NOTHING if found is None else (yield from delete_op(*found))


def delete_op(key: str, record: DataRecord) -> Op[Done]:
    """Delete a record that was found."""
    dropped = yield from PROTOCOL.delete_op(key, record)
    return Done(cleanup=PROTOCOL.drop_op(key, record.generation, dropped, None))


def _update_op(request: Request, read: DataRecord) -> Op[Done]:
    keys = index_keys(request) if request.kind is Kind.UPDATE else read.keys
    written = yield from PROTOCOL.update_op(request.key, read, keys, request.value)
    record = written.record
    return Done(cleanup=PROTOCOL.drop_op(request.key, record.generation, written.dropped, record.version))
