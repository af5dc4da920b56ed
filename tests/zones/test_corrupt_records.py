"""Ten thousand damaged values, keys, files and commands: only documented errors are raised.

Each test draws its cases from a seed of its own, `FAIRLEAD_FUZZ_SEED` plus a number, and says which one failed; the
long form draws twenty times as many.
"""

from __future__ import annotations

import io
import os
import zlib
from collections.abc import Callable
from contextlib import suppress
from hashlib import blake2b
from random import Random
from typing import Any

import msgspec
import pytest

from fairlead.zones.engines import StoreError
from fairlead.zones.engines.embedded.cross_process.commit_requests import (
    UNDECODABLE,
    pack,
    pack_answer,
    unpack,
    unpack_answer,
)
from fairlead.zones.engines.optimistic.commit import CommitRequest
from fairlead.zones.engines.optimistic.commit_log import ReadSet
from fairlead.zones.engines.optimistic.ranges import KeySet
from fairlead.zones.engines.optimistic.writes import Writes
from fairlead.zones.errors import BackupRefused, PayloadDamaged, QueueError, ShardRefused
from fairlead.zones.maintenance.backup import backup, restore
from fairlead.zones.maintenance.backup.backup_file import DIGEST_BYTES, HEADER_BYTES_MAX, MAGIC
from fairlead.zones.maintenance.integrity import check_integrity
from fairlead.zones.policy import limits
from fairlead.zones.queue import results
from fairlead.zones.queue.items import pack_payload, unpack_payload
from fairlead.zones.records import (
    DeadLetterRecord,
    HandlerRecord,
    ItemRecord,
    KindPolicy,
    OwnerRecord,
    PeriodicRecord,
    PlacementRecord,
    PointerRecord,
    Progress,
    Record,
    ShardRecord,
    TenantPolicy,
    decode,
    encode,
    unpacked,
)
from fairlead.zones.reporting import completion_log, rollups, worker_status
from fairlead.zones.top_level import sessions
from tests.clocks import ManualClock
from tests.zones import corrupting
from tests.zones.corrupting import WAYS, actions, damaged_world, left, memory, populate
from tests.zones.world import World

SEED = int(os.environ.get("FAIRLEAD_FUZZ_SEED", "0"))
ITEM = ItemRecord(
    "mail", pack_payload({"order": 7}), 100, 1_700, 1_600, lease_id=b"l" * 16, given_id="order-7", last_error="ä" * 40,
    trace={"traceparent": "00-1-2-01"}, session=b"s" * 8, progress=Progress(1.0, 2.0, "half", 1_600),
)  # fmt: skip
POLICY = TenantPolicy(True, 5, 0.5, 3, 2.0)
RECORDS: list[Record] = [
    ITEM,
    PointerRecord(1_700, 1_600, b"l" * 16, 5, cursor=b"r" * 40, best_skipped=2, outcome=1),
    DeadLetterRecord(ITEM, "error", "ValueError: no", "Traceback ...", 1_800),
    OwnerRecord(3, b"s" * 16, POLICY),
    POLICY,
    KindPolicy(True, 5, 0.5, 3),
    ShardRecord(b"s" * 16, 16, 1_500, 2),
    HandlerRecord("mail", 2, b"code" * 20, b"s" * 32, 1_500),
    PeriodicRecord(60_000_000, 1_900),
    PlacementRecord("eu", ("eu", "us")),
]
PAYLOADS = [None, {"order": [7, "ä", 2.5, b"bytes", None, True, {"deep": [[[1]]]}]}, "ü" * 50, list(range(40))]


def cases(count: int) -> pytest.MarkDecorator:
    """Run a test with a seeded generator for each of `count` cases, and for twenty times as many in the long form."""
    long = [pytest.mark.long, pytest.mark.timeout(3_600)]
    forms = [pytest.param(count, id=str(count)), pytest.param(20 * count, id="many", marks=long)]
    return pytest.mark.parametrize("count", forms)


def damaged(value: bytes, random: Random) -> bytes:
    """Return bytes damaged once, or several times."""
    for _ in range(random.choice((1, 1, 1, 2, 5))):
        value = random.choice(WAYS)(value, random)
    if random.random() < 0.1:
        value = value[: random.randrange(len(value) + 1)] + b"\x91" * 2_000 + value
    return value


def each(count: int, number: int, case: Callable[[Random], object]) -> None:
    """Run `case` as often as that, and say which seed failed."""
    for seed in range(SEED + number * 10**6, SEED + number * 10**6 + count):
        try:
            case(Random(seed))
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise


@cases(500)
@pytest.mark.parametrize("number", range(len(RECORDS)), ids=[type(record).__name__ for record in RECORDS])
def test_a_damaged_record_is_none_or_a_record(number: int, count: int) -> None:
    """What was decoded is as good as any other: it is written as it was read."""
    struct, value = type(RECORDS[number]), encode(RECORDS[number])

    def case(random: Random) -> None:
        read = decode(struct, value[: random.choice((0, 1))] + damaged(value[1:], random))
        assert read is None or decode(struct, encode(read)) == read

    each(count, number, case)


SOFT: list[tuple[Any, Any]] = [
    (sessions._decoder, sessions.SessionRecord("there", 1, ["mail", "index"], 5, 6)),
    (limits._grants, limits.Grant(3, 1_700)),
    (limits._buckets, limits.Bucket(3_000, 1_700)),
    (worker_status._decoder, worker_status.WorkerStatus(b"c" * 8, "there", 1, 4, 2, 1_700, [])),
    (results._decoder, results.KeptResult(pack_payload("ä"), 1_700)),
    (rollups._rollups, rollups.Rollup({"mail": rollups.KindRollup(1, 2)}, {"shop": {"alice": 7}})),
    (rollups._intervals, rollups.Interval(7, rollups.Rollup({"mail": rollups.KindRollup(1, 2)}), {"mail": 3}, 1_700)),
    (completion_log._commit_decoder,
     [completion_log.EndedOfZone("shop", "alice", "queue", [completion_log.EndedItem(b"i" * 16, "mail", 0, 1, 5)])]),
    (completion_log._block_decoder, [(1_700, b"what one commit wrote")]),
]  # fmt: skip


@cases(100)
@pytest.mark.parametrize("number", range(len(SOFT)), ids=[type(value).__name__ for _, value in SOFT])
def test_damaged_soft_state_is_decoded_as_none_or_as_its_type(number: int, count: int) -> None:
    decoder, value = SOFT[number]
    packed = b"\x01" + msgspec.msgpack.encode(value)
    assert unpacked(decoder, packed) == value
    each(count, 100 + number, lambda random: unpacked(decoder, b"\x01" + damaged(packed[1:], random)))


@cases(1_000)
def test_a_damaged_payload_is_data_or_reported_as_damaged(count: int) -> None:
    packed = [pack_payload(payload) for payload in PAYLOADS]

    def case(random: Random) -> None:
        with suppress(PayloadDamaged):
            unpack_payload(damaged(random.choice(packed), random))

    each(count, 200, case)


# --- Files and commit requests ---


def backed_up() -> bytes:
    world = World(*memory())
    populate(world)
    file = io.BytesIO()
    backup(world.shard, file)
    return file.getvalue()


def sealed(body: bytes) -> bytes:
    return body + blake2b(body, digest_size=DIGEST_BYTES).digest()


@cases(300)
def test_a_damaged_backup_is_refused_or_restored(count: int) -> None:
    """Also one whose checksum is right: it is refused, or restored as a store that a check can repair."""
    whole = backed_up()
    header_end = len(MAGIC) + 4 + int.from_bytes(whole[len(MAGIC) :][:4], "big")
    header, pairs = whole[:header_end], zlib.decompress(whole[header_end:-DIGEST_BYTES])

    def made(random: Random) -> bytes:
        match random.randrange(4):
            case 0:
                return damaged(whole, random)
            case 1:
                return sealed(damaged(whole[:-DIGEST_BYTES], random))
            case 2:
                return sealed(header + zlib.compress(damaged(pairs, random)))
        body = damaged(header[len(MAGIC) + 4 :], random)[:HEADER_BYTES_MAX]
        return sealed(MAGIC + len(body).to_bytes(4, "big") + body + zlib.compress(pairs))

    def case(random: Random) -> None:
        db, clock = memory()
        try:
            restore(db, io.BytesIO(made(random)), clock=clock, random=random)
        except BackupRefused:
            return
        try:
            check_integrity(World(db, clock).shard, quarantine=True)
        except QueueError:  # The shard's own record is damaged.
            return

    each(count, 300, case)


@cases(100)
def test_a_backup_of_a_damaged_store_can_be_restored_and_repaired_there(count: int) -> None:
    """It copies what it cannot read as it is, and derives nothing from it."""

    def case(random: Random) -> None:
        world, damages = damaged_world(random)
        file = io.BytesIO()
        try:
            backup(world.shard, file)
        except ShardRefused:  # A damaged record looks like one of a newer version.
            return
        db, clock = memory()
        restore(db, file, clock=clock, random=random)
        check_integrity(World(db, clock).shard, quarantine=True)
        report = check_integrity(World(db, clock).shard)
        assert left(report) == [], damages

    each(count, 350, case)


@cases(800)
def test_a_damaged_commit_request_is_unreadable_or_a_list_of_commits(count: int) -> None:
    """A request names atomic operations from a fixed table; nothing in it is ever code."""
    writes = Writes()
    writes.put(b"key", b"value", conflicting=True)
    writes.clear_range(b"a", b"b", conflicting=True)
    request = CommitRequest(ManualClock(), ReadSet(KeySet({b"read"})), 5, writes, [], [])
    batch, answer = pack([request, request], 3), pack_answer([(7, writes.touched()), StoreError(1020)])
    assert batch is not None

    def case(random: Random) -> None:
        with suppress(*UNDECODABLE):
            unpack(b"name", damaged(batch, random), ManualClock())
        with suppress(*UNDECODABLE):
            unpack_answer(damaged(answer, random), [request, request])

    each(count, 400, case)


# --- Whole stores ---


@cases(50)
@pytest.mark.parametrize("of_runs", [False, True], ids=["anything", "workflows"])
def test_whatever_was_damaged_in_a_store_nothing_raises_but_what_is_documented(of_runs: bool, count: int) -> None:
    """Producers, workers, housekeeping, operators, readers; then it is checked, repaired and set aside."""

    def case(random: Random) -> None:
        world, damages = damaged_world(random, of_runs=of_runs)
        for name, action in actions(world):
            try:
                action()
            except (QueueError, StoreError):
                continue
            except Exception as error:
                error.add_note(f"{name}, after {damages}")
                raise
        check_integrity(world.shard)
        check_integrity(world.shard, repair=True)
        check_integrity(world.shard, quarantine=True)
        assert left(check_integrity(world.shard)) == [], damages

    each(count, 500 + of_runs, case)


def test_there_are_ten_thousand_cases_with_those_of_other_files() -> None:
    counted = 500 * len(RECORDS) + 100 * len(SOFT) + 1_000 + 300 + 2 * 800 + 2 * 50
    assert counted >= 7_500, "and 2,500 in tests/fairlead/test_corrupt_input.py"
    assert corrupting.populated()
