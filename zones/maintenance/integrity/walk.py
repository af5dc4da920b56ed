"""Walking through a key space in bounded transactions, and running checks on the rows.

A check is an operation of `fairlead.zones.pipelining`: it sends its reads, yields, and compares. All checks of a chunk
run together in the transaction that read the chunk.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from fairlead.zones.engines import Database, KeyValue, Reader, Transaction, transact
from fairlead.zones.maintenance.integrity.findings import Problem, Report
from fairlead.zones.maintenance.quarantine import set_aside
from fairlead.zones.pipelining import Operation, run_one, run_together
from fairlead.zones.shard import Shard
from fairlead.zones.transaction_runner import Attempt

CHUNK_KEYS = 500  # With the reads of their checks some 50 ms of a transaction's 5 s.
CHUNK_BYTES = 1_000_000

Check = Callable[[Transaction], Operation[list[Problem]]]
Skip = Callable[[bytes], bytes | None]


class Chunk(NamedTuple):
    """Some rows in order. `next_key`: where the next chunk begins; None: this is the last chunk."""

    rows: list[KeyValue]
    next_key: bytes | None


def nothing(key: bytes) -> None:
    """Skip nothing."""


def read_chunk(
    tr: Reader,
    begin: bytes,
    end: bytes,
    skip: Skip = nothing,
    *,
    keys_max: int = CHUNK_KEYS,
    bytes_max: int = CHUNK_BYTES,
) -> Chunk:
    """Read up to `keys_max` rows or about `bytes_max` bytes from `begin` on. Snapshot reads.

    `skip(key)` returns the key to go on with if `key` is not checked, else None. Skipped rows are read up to a bound,
    which costs less than a seek for every few rows.
    """
    rows: list[KeyValue] = []
    size = 0
    skip_to: bytes | None = None
    passed_max = 4 * keys_max
    for passed, row in enumerate(tr.snapshot.get_range(begin, end, limit=passed_max), start=1):
        size += len(row.key) + len(row.value)
        if skip_to is None or row.key >= skip_to:
            skip_to = skip(row.key)
            if skip_to is None:
                rows.append(row)
        if len(rows) == keys_max or size >= bytes_max or passed == passed_max:
            return Chunk(rows, row.key + b"\x00" if skip_to is None else skip_to)
    return Chunk(rows, None)


def walk(
    db: Database,
    begin: bytes,
    end: bytes,
    checks_of: Callable[[list[KeyValue]], list[Check]],
    *,
    skip: Skip = nothing,
) -> Iterator[tuple[list[KeyValue], list[Check], bool]]:
    """Yield, chunk by chunk: the rows, the checks that found something, and whether this is the last chunk.

    `checks_of` may be called several times with rows of one chunk.
    """
    next_key: bytes | None = begin
    while next_key is not None:

        def check_chunk(tr: Transaction, begin: bytes = next_key) -> tuple[Chunk, list[Check]]:
            chunk = read_chunk(tr, begin, end, skip)
            checks = checks_of(chunk.rows)
            problems = run_together(check(tr) for check in checks)
            return chunk, [check for check, found in zip(checks, problems, strict=True) if found]

        chunk, failing_checks = transact(db, check_chunk)
        next_key = chunk.next_key
        yield chunk.rows, failing_checks, next_key is None


def confirm(shard: Shard, check: Check, report: Report, *, repair: bool, quarantine: bool = False) -> None:
    """Run a check once more in a transaction of its own, report what it finds, and repair it if `repair`.

    With `quarantine`, set aside what is damaged. A transaction that repairs has a receipt, so the report is right even
    after a commit of unknown result.
    """

    def body(attempt: Attempt) -> list[Problem]:
        tr = attempt.tr
        problems = run_one(check(tr))
        attempt.needs_receipt = repair and bool(problems)
        for problem in problems:
            if quarantine:
                for begin, end in problem.aside:
                    set_aside(tr, begin, end, why=problem.what, now_us=attempt.now_us)
            if repair and problem.mend is not None:
                problem.mend(tr)
        return problems

    for problem in shard.transact(body):
        repaired = repair and problem.mend is not None
        report.add(problem, repaired=repaired, set_aside=quarantine and bool(problem.aside))
