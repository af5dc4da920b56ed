"""Commit requests as bytes, so that another process can make the commits.

`flat_combining` posts them in a `mailbox`. A request batch holds the commits of one group. Each commit has a commit id:
a key that only this commit writes, and that no user can write. The leader stores the commit id in the commit log, with
the keys that the commit conflicts on. So the log shows for certain whether a commit was made, whichever process dies,
and at whatever instant.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from fairlead.zones.engines.api.clock import Clock
from fairlead.zones.engines.api.errors import StoreError
from fairlead.zones.engines.optimistic import atomics
from fairlead.zones.engines.optimistic.atomics import Atomic
from fairlead.zones.engines.optimistic.commit import CommitRequest, Outcome
from fairlead.zones.engines.optimistic.commit_log import ReadSet
from fairlead.zones.engines.optimistic.ranges import KEYS_END, KeySet, Range
from fairlead.zones.engines.optimistic.writes import PendingAtomics, Writes

_COMMIT_ID_BEGIN: Final = KEYS_END + b"mark"
COMMITS_MAX: Final = 64  # In a batch.
WRITES_MAX: Final = 200  # Some twenty small enqueues. A larger batch gains little by sharing, and takes long to pack.

_OPERATIONS: Final[dict[str, Atomic]] = {
    operation.__name__: operation
    for operation in (
        atomics.add, atomics.bit_and, atomics.bit_or, atomics.bit_xor, atomics.maximum, atomics.minimum,
        atomics.byte_max, atomics.byte_min, atomics.append_if_fits, atomics.compare_and_clear,
    )
}  # fmt: skip

# The errors of `unpack` and `unpack_answer` for bytes that another version wrote, or that are damaged.
UNDECODABLE: Final = (msgspec.MsgspecError, ValueError, RecursionError, KeyError)

_Keys = tuple[list[bytes], list[Range]]


class _Commit(msgspec.Struct, array_like=True):
    """One commit. `reads` and `read_version` are None together. `pending`: atomic operations, by name and parameter."""

    read_version: int | None
    reads: _Keys | None
    entries: list[tuple[bytes, bytes | None]]
    pending: list[tuple[bytes, list[tuple[str, bytes]]]]
    ranges: list[Range]
    conflicts: _Keys
    conflict_free_keys: list[bytes]
    has_conflict_free_ranges: bool


class _RequestBatch(msgspec.Struct, array_like=True):
    floor: int
    commits: list[_Commit]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_RequestBatch).decode
_decode_answer = msgspec.msgpack.Decoder(list[int]).decode


def commit_id_of(batch: bytes, number: int) -> bytes:
    """Return the id of commit `number` of the batch named `batch`."""
    return _COMMIT_ID_BEGIN + batch + bytes([number])


def pack(requests: Sequence[CommitRequest], floor: int) -> bytes | None:
    """Return some commits as a batch; None if they are too many, or if one of them needs its versionstamp.

    Args:
      floor: a version before all of them. The leader looks for their commit ids above it.
    """
    if len(requests) > COMMITS_MAX or sum(len(request.writes.entries) for request in requests) > WRITES_MAX:
        return None
    if any(request.writes.unreadable is not None for request in requests):
        return None
    return _encode(_RequestBatch(floor, [_packed(request) for request in requests]))


def _packed(request: CommitRequest) -> _Commit:
    writes, reads = request.writes, request.reads
    entries: list[tuple[bytes, bytes | None]] = []
    pending: list[tuple[bytes, list[tuple[str, bytes]]]] = []
    for key, entry in writes.entries.items():
        if isinstance(entry, PendingAtomics):
            pending.append((key, [(operation.__name__, param) for operation, param in entry]))
        else:
            entries.append((key, entry))
    return _Commit(
        request.read_version,
        None if reads is None else (list(reads.points), reads.ranges),
        entries,
        pending,
        writes.ranges,
        (list(writes.conflicts.points), writes.conflicts.ranges),
        list(writes.conflict_free_keys),
        writes.has_conflict_free_ranges,
    )


def unpack(name: bytes, batch: bytes, clock: Clock) -> list[CommitRequest]:
    """Return the commits of a batch, with their commit ids.

    Raises:
      One of `UNDECODABLE`: another version of this program wrote the batch, or the batch is damaged.
    """
    read = _decode(batch)
    return [
        _unpacked(commit, commit_id_of(name, number), read.floor, clock) for number, commit in enumerate(read.commits)
    ]


def _unpacked(commit: _Commit, commit_id: bytes, floor: int, clock: Clock) -> CommitRequest:
    writes = Writes()
    writes.entries.update(commit.entries)
    for key, operations in commit.pending:
        for name, param in operations:
            writes.update(key, _OPERATIONS[name], param, conflicting=True)
    writes.ranges = commit.ranges
    writes.conflicts = KeySet(*commit.conflicts)
    writes.conflict_free_keys.update(commit.conflict_free_keys)
    writes.has_conflict_free_ranges = commit.has_conflict_free_ranges
    reads = None if commit.reads is None else ReadSet(KeySet(*commit.reads))
    request = CommitRequest(clock, reads, commit.read_version, writes, [], [])
    request.commit_id, request.floor = commit_id, floor
    return request


def pack_answer(outcomes: Sequence[Outcome]) -> bytes:
    """Return the answer to a batch: for each commit its version, or the negative number of its error."""
    return _encode([-outcome.code if isinstance(outcome, StoreError) else outcome[0] for outcome in outcomes])


def unpack_answer(answer: bytes, requests: Sequence[CommitRequest]) -> list[Outcome]:
    """Return the outcomes of a batch's commits. Raises as `unpack`."""
    numbers = _decode_answer(answer)
    return [
        (number, request.writes.touched()) if number > 0 else StoreError(-number)
        for number, request in zip(numbers, requests, strict=True)
    ]
