"""Commits as bytes, so that another process can make them: what `flat_combining` leaves in a `mailbox`.

Each commit in a letter has a mark, a key that nobody else writes and that no user can. It goes into the commit log with
what the commit conflicts on, so the log tells for certain whether a commit was made, whoever dies when.
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
COMMITS_MAX: Final = 64  # In a letter.
WRITES_MAX: Final = 200  # Some twenty small enqueues. What is larger gains little by company, and is long to pack.

_OPERATIONS: Final[dict[str, Atomic]] = {
    operation.__name__: operation
    for operation in (
        atomics.add, atomics.bit_and, atomics.bit_or, atomics.bit_xor, atomics.maximum, atomics.minimum,
        atomics.byte_max, atomics.byte_min, atomics.append_if_fits, atomics.compare_and_clear,
    )
}  # fmt: skip

# What `unpack` and `unpack_answer` raise of what another version wrote, or is damaged.
UNDECODABLE: Final = (msgspec.MsgspecError, ValueError, RecursionError, KeyError)

_Keys = tuple[list[bytes], list[Range]]


class _Commit(msgspec.Struct, array_like=True):
    """One commit. `reads` is None with `read_version`. `pending` holds names and parameters of atomic operations."""

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
    """Return the mark of commit `number` of the letter that is called `batch`."""
    return _COMMIT_ID_BEGIN + batch + bytes([number])


def pack(requests: Sequence[CommitRequest], floor: int) -> bytes | None:
    """Return a letter that asks for some commits; None if they are too many, or one waits for its versionstamp.

    Args:
      floor: a version before all of them: their marks are looked for above it.
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
    """Return the commits that a letter asks for, marked.

    Raises:
      One of `UNDECODABLE`: another version of this program wrote it, or it is damaged.
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
    """Return the answer to a letter: per commit its version, or the error's number, negative."""
    return _encode([-outcome.code if isinstance(outcome, StoreError) else outcome[0] for outcome in outcomes])


def unpack_answer(answer: bytes, requests: Sequence[CommitRequest]) -> list[Outcome]:
    """Return what became of the commits of a letter. Raises as `unpack`."""
    numbers = _decode_answer(answer)
    return [
        (number, request.writes.touched()) if number > 0 else StoreError(-number)
        for number, request in zip(numbers, requests, strict=True)
    ]
