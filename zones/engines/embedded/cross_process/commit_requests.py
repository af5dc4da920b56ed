"""Commits as bytes, so that another process can make them: what `joint_commit` leaves in a `letterbox`.

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
from fairlead.zones.engines.optimistic.commit_log import Reads
from fairlead.zones.engines.optimistic.ranges import KEYS_END, KeySet, Range
from fairlead.zones.engines.optimistic.writes import Waiting, Writes

_MARK_BEGIN: Final = KEYS_END + b"mark"
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
UNREADABLE: Final = (msgspec.MsgspecError, ValueError, RecursionError, KeyError)

_Keys = tuple[list[bytes], list[Range]]


class _Commit(msgspec.Struct, array_like=True):
    """One commit. `reads` is None with `read_version`. `waiting` holds names and parameters of atomic operations."""

    read_version: int | None
    reads: _Keys | None
    entries: list[tuple[bytes, bytes | None]]
    waiting: list[tuple[bytes, list[tuple[str, bytes]]]]
    ranges: list[Range]
    conflicts: _Keys
    silent: list[bytes]
    quiet_ranges: bool


class _Letter(msgspec.Struct, array_like=True):
    floor: int
    commits: list[_Commit]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Letter).decode
_decode_answer = msgspec.msgpack.Decoder(list[int]).decode


def mark_of(letter: bytes, number: int) -> bytes:
    """Return the mark of commit `number` of the letter that is called `letter`."""
    return _MARK_BEGIN + letter + bytes([number])


def pack(requests: Sequence[CommitRequest], floor: int) -> bytes | None:
    """Return a letter that asks for some commits; None if they are too many, or one waits for its versionstamp.

    Args:
      floor: a version before all of them: their marks are looked for above it.
    """
    if len(requests) > COMMITS_MAX or sum(len(request.writes.entries) for request in requests) > WRITES_MAX:
        return None
    if any(request.writes.unreadable is not None for request in requests):
        return None
    return _encode(_Letter(floor, [_packed(request) for request in requests]))


def _packed(request: CommitRequest) -> _Commit:
    writes, reads = request.writes, request.reads
    entries: list[tuple[bytes, bytes | None]] = []
    waiting: list[tuple[bytes, list[tuple[str, bytes]]]] = []
    for key, entry in writes.entries.items():
        if isinstance(entry, Waiting):
            waiting.append((key, [(operation.__name__, param) for operation, param in entry]))
        else:
            entries.append((key, entry))
    return _Commit(
        request.read_version,
        None if reads is None else (list(reads.points), reads.ranges),
        entries,
        waiting,
        writes.ranges,
        (list(writes.conflicts.points), writes.conflicts.ranges),
        list(writes.silent),
        writes.quiet_ranges,
    )


def unpack(name: bytes, letter: bytes, clock: Clock) -> list[CommitRequest]:
    """Return the commits that a letter asks for, marked.

    Raises:
      One of `UNREADABLE`: another version of this program wrote it, or it is damaged.
    """
    read = _decode(letter)
    return [_unpacked(commit, mark_of(name, number), read.floor, clock) for number, commit in enumerate(read.commits)]


def _unpacked(commit: _Commit, mark: bytes, floor: int, clock: Clock) -> CommitRequest:
    writes = Writes()
    writes.entries.update(commit.entries)
    for key, operations in commit.waiting:
        for name, param in operations:
            writes.update(key, _OPERATIONS[name], param, conflicting=True)
    writes.ranges = commit.ranges
    writes.conflicts = KeySet(*commit.conflicts)
    writes.silent.update(commit.silent)
    writes.quiet_ranges = commit.quiet_ranges
    reads = None if commit.reads is None else Reads(KeySet(*commit.reads))
    request = CommitRequest(clock, reads, commit.read_version, writes, [], [])
    request.mark, request.floor = mark, floor
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
