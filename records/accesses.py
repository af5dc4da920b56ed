"""The accesses to stores that the protocol of records makes, and what runs it.

An operation of the protocol is a generator. It yields the accesses that it makes at once, in parallel, and gets their
answers in the same order. An answer may be a `RecordError`, which `one` and `several` raise. So the protocol knows no
store, no thread and no event loop, and a test can stop an operation before and after every access.

    def find_op(index_key):
        named = yield from one(LookUp(index_key))
        ...
"""

from collections.abc import Callable, Generator, Sequence
from enum import Enum
from typing import Any, NamedTuple, TypeVar

from fairlead.records.errors import RecordError
from fairlead.records.stored import DataRecord, IndexRecord

T = TypeVar("T")


class ReadRecord(NamedTuple):
    """Read the data record of a primary key. Answer: a `DataRecord`, or None.

    `found_by`: the index key, or what it begins with, that named it to a user, who is refused unless the index is
    readable; empty: none.
    """

    key: str
    found_by: bytes = b""


class WriteRecord(NamedTuple):
    """Write a data record if the present one is as `expected`, by generation and version. Answer: whether it was.

    `expected` None: if there is none.
    """

    key: str
    expected: DataRecord | None
    record: DataRecord


class DeleteRecord(NamedTuple):
    """Delete a data record if it is as `expected`, by generation and version. Answer: whether it was.

    `is_clean`: it is a dummy whose index records are deleted, so that it needs no cleanup.
    """

    key: str
    expected: DataRecord
    is_clean: bool = False


class ReadIndex(NamedTuple):
    """Read the index record of an alternate key. Answer: an `IndexRecord`, or None."""

    index_key: bytes


class LookUp(NamedTuple):
    """Read an index record for a user, who is refused unless the index is readable. Answer: a `LookedUp`, or None.

    A store that holds the record, too, reads that at the same time.
    """

    index_key: bytes


class LookedUp(NamedTuple):
    """The answer to `LookUp`: the primary key that an index record names.

    `is_read`: `record` is the record of that key, or None if there is none; otherwise it is still to be read.
    """

    key: str
    record: DataRecord | None = None
    is_read: bool = False


class ListIndex(NamedTuple):
    """Read index records of a field for lookup. Answer: a list of primary keys, in order, at most `limit`.

    `value_part`: what their index keys begin with. `after`: only primary keys that come after it.
    """

    value_part: bytes
    after: str
    limit: int


class WriteIndex(NamedTuple):
    """Write an index record if the present one equals `expected`; None: if there is none. Answer: whether it was."""

    index_key: bytes
    expected: IndexRecord | None
    entry: IndexRecord


class DeleteIndex(NamedTuple):
    """Delete an index record if it equals `expected`. Answer: whether it was deleted."""

    index_key: bytes
    expected: IndexRecord


class EndWriters(NamedTuple):
    """Phases 2 and 3 of a collection in one transaction, of a store that has them. Answer: an `Ended`."""

    index_key: bytes
    entry: IndexRecord


class Ended(Enum):
    """The answer to `EndWriters`."""

    VALID = "the record that the index record names has the key"
    ENDED = "whoever was about to give the key to that record will fail"


class WriteAtOnce(NamedTuple):
    """A whole write in one transaction, if the record and all its index records are on one shard. Answer: `AtOnce`.

    `expected` None: there is no record yet.
    """

    key: str
    expected: DataRecord | None
    record: DataRecord


class DeleteAtOnce(NamedTuple):
    """A whole deletion in one transaction, as `WriteAtOnce`: of a record that is as expected, and its index records."""

    key: str
    expected: DataRecord


class AtOnce(Enum):
    """The answer to `WriteAtOnce` and `DeleteAtOnce`."""

    WRITTEN = "it is written"
    SPREAD = "the records lie on several shards; nothing was written"
    REFUSED = "a condition does not hold; nothing was written"


DataAccess = ReadRecord | WriteRecord | DeleteRecord | EndWriters | WriteAtOnce | DeleteAtOnce
IndexAccess = ReadIndex | LookUp | ListIndex | WriteIndex | DeleteIndex
Access = DataAccess | IndexAccess
Op = Generator[Sequence[Access], list[Any], T]
Perform = Callable[[Sequence[Access]], Sequence[Any]]  # Answers in order; one may be a `RecordError`.


def run_op(operation: Op[T], perform: Perform) -> T:
    """Run an operation to its end: `perform` makes its accesses. Return its result."""
    try:
        accesses = next(operation)
        while True:
            accesses = operation.send(list(perform(accesses)))
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]


def one(access: Access) -> Op[Any]:
    """Make one access; return its answer.

    Raises:
      RecordError: that is the answer.
    """
    [answer] = yield [access]  # Not by `several`: each generator between costs every access a third of a microsecond.
    if isinstance(answer, RecordError):
        raise answer
    return answer


def several(accesses: Sequence[Access]) -> Op[list[Any]]:
    """Make accesses in parallel; return their answers. Raises the first `RecordError` among them."""
    answers = yield accesses
    for answer in answers:
        if isinstance(answer, RecordError):
            raise answer
    return answers


def together(operations: Sequence[Op[T]]) -> Op[list[T]]:
    """Run operations in parallel: each round makes the next accesses of all. Return their results in order.

    If one fails, the others still get their answers of this round, and then end. The first error is raised.

    Raises:
      RecordError: an operation has failed.
    """
    results: dict[int, T] = {}
    waiting: dict[int, Sequence[Access]] = {}
    errors: list[RecordError] = []

    def advance(number: int, answers: list[Any] | None) -> None:
        try:
            waiting[number] = operations[number].send(answers)  # type: ignore[arg-type]
        except StopIteration as stop:
            results[number] = stop.value
        except RecordError as error:
            errors.append(error)

    for number in range(len(operations)):
        advance(number, None)
    while waiting and not errors:
        numbers, sent = list(waiting), list(waiting.values())
        waiting.clear()
        answers = yield [access for accesses in sent for access in accesses]
        at = 0
        for number, accesses in zip(numbers, sent, strict=True):
            advance(number, answers[at : at + len(accesses)])
            at += len(accesses)
    for operation in operations:
        operation.close()
    if errors:
        raise errors[0]
    return [results[number] for number in range(len(operations))]
