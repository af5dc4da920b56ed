"""Checks of participants over several shards: each run of which a tenant keeps something has a home that knows of it.

The home records a participant before the first step there. It forgets the participant only after the cleanup there has
committed. So what is kept of a run is read first, then the homes, and then what is kept once more. If no home knew of
it in between, and it is still there, no home will ever clear it. So shards in use give no false alarm, though no
transaction reads two of them.
"""

from collections.abc import Mapping
from functools import partial

from fairlead.zones.engines import Reader, Transaction, transact
from fairlead.zones.errors import TenantBusy, TenantMoved
from fairlead.zones.keyspace import STEP_LOG, TenantKeys, pack_int, range_begin, range_end, tenant_prefix, unpack_int
from fairlead.zones.layout import DEFAULT_ZONE, ShardLayout, Tenant
from fairlead.zones.local_index import move_count_op
from fairlead.zones.maintenance.integrity.findings import KeptRun, Problem, Report
from fairlead.zones.maintenance.integrity.parsed_keys import tenant_range
from fairlead.zones.maintenance.integrity.runs import TOMBSTONE_VALUE, is_held
from fairlead.zones.maintenance.integrity.walk import Chunk, confirm, read_chunk
from fairlead.zones.ownership import check_owner
from fairlead.zones.pipelining import Operation, run_one
from fairlead.zones.shard import Shard
from fairlead.zones.tuples import elements_of
from fairlead.zones.workflow import locks
from fairlead.zones.workflow.participants import clean_up_op
from fairlead.zones.workflow.run_records import head_key

NO_HOME = "a tenant keeps steps of a run that no shard knows"
REMEDY_OF_NO_HOME = (
    "its cleanup was lost, or its home was restored from an older backup: compare what it has done; --repair clears its"
    " steps there, and leaves a tombstone"
)
_HEAD, _PARTICIPANT = 1, 2
SEARCHES_MAX = 5  # Moves of tenants are rare: most checks need one.


def check_homes(
    shards: Mapping[str, Shard], reports: Mapping[str, Report], *, all_shards: bool, repair: bool = False
) -> None:
    """Look for the homes of the runs that participants keep something of, and add to the reports what has none.

    Call it after `check_integrity` of each shard. A repair does what the lost cleanup would have done.

    Args:
      reports: of those shards.
      all_shards: there are no other shards, on which a home could be. Otherwise the runs are only listed, in
        `Report.without_home`.
    """
    wanted = {kept for report in reports.values() for kept in report.kept}
    if not wanted:
        return
    found = _without_home(shards, wanted)
    if found is None:
        for report in reports.values():
            report.unverified += bool(report.kept)
        return
    wanted = found
    for name, report in reports.items():
        shard = shards[name]
        for kept in sorted(wanted & report.kept):
            check = partial(check_kept, layout=shard.layout, kept=kept, now_us=shard.clock.now_us())
            try:
                if all_shards:
                    confirm(shard, check, report, repair=repair)
                elif shard.transact(lambda attempt: bool(run_one(check(attempt.tr)))):  # noqa: B023 - called here
                    report.without_home.append(kept)
            except TenantBusy:
                report.unverified += 1


def _without_home(shards: Mapping[str, Shard], wanted: set[KeptRun]) -> set[KeptRun] | None:
    """Return those of some runs whose home is on no shard; None: tenants moved during each search.

    A home may move from a shard that is still to be read to one that was read before. A tenant is listed at its new
    home before it is cleared at the former one, and that is counted.
    """
    for _ in range(SEARCHES_MAX):
        before, left = _move_counts(shards), wanted
        for shard in shards.values():
            left = without_known(shard, left)
        if not left or _move_counts(shards) == before:
            return left
    return None


def _move_counts(shards: Mapping[str, Shard]) -> list[int]:
    return [transact(shard.db, lambda tr: run_one(move_count_op(tr))) for shard in shards.values()]


def check_kept(tr: Transaction, layout: ShardLayout, kept: KeptRun, *, now_us: int) -> Operation[list[Problem]]:
    """Check that a tenant no longer keeps anything of a run but a tombstone, or is its home.

    Snapshot reads of the items.
    """
    tenant, run = kept
    location = layout.location(tenant, DEFAULT_ZONE)
    keys = location.keys.tenant
    log, fence_key = keys.step_log(run), keys.fence(run)
    rows = tr.get_range(range_begin(log), range_end(log), limit=1)
    owner, fence, requests = tr.get(keys.owner), tr.get(fence_key), locks.has_requests(tr, keys, run)
    yield
    first, request = next(iter(rows), None), next(iter(requests), None)
    if request is None and (fence.value == TOMBSTONE_VALUE or (fence.value is None and first is None)):
        return []
    try:
        check_owner(tr, layout, keys, owner.value)
    except TenantMoved:
        return []
    if (first is not None and first.key == head_key(keys, run)) or is_held(tr, location, run):
        return []

    def clean_up(tr: Transaction) -> None:
        run_one(clean_up_op(tr, layout, tenant, keys, run, now_us=now_us))

    row = first or request
    key = fence_key if row is None else row.key
    return [Problem(NO_HOME, key, location, mend=clean_up, run=run, remedy=REMEDY_OF_NO_HOME)]


def without_known(shard: Shard, wanted: set[KeptRun]) -> set[KeptRun]:
    """Return those of some runs at participants whose home is not on a shard. Reads no entries.

    A home knows of a participant that it has recorded. A run with a head has not ended: it is left alone, whatever of
    it is lost.
    """
    begin, end = tenant_range()
    next_key: bytes | None = begin
    while next_key is not None:

        def read(tr: Reader, begin: bytes = next_key) -> Chunk:
            return read_chunk(tr, begin, end, _to_heads_and_participants)

        rows, next_key = transact(shard.db, read)
        live: set[bytes] = set()
        for row in rows:
            match elements_of(row.key):
                case (_, _, _, _, _, bytes(run), int(_), str(app), str(user)):
                    wanted.discard(KeptRun(Tenant(app, user), run))
                case (_, _, _, _, _, bytes(run), int(_)):
                    live.add(run)
        wanted = {kept for kept in wanted if kept.run not in live} if live else wanted
    return wanted


def _to_heads_and_participants(key: bytes) -> bytes | None:
    """Return where to go on behind a key, if it is neither a head nor records a participant."""
    tenant = tenant_prefix(key)
    if tenant == key:  # It is damaged.
        return key + b"\x00"
    sort = unpack_int(key, len(tenant))
    logs = tenant + pack_int(STEP_LOG)
    if sort is None:
        return key + b"\x00"
    if sort[0] != STEP_LOG:
        return logs if sort[0] < STEP_LOG else range_end(tenant)
    match elements_of(key):
        case (_, _, str(app), str(user), int(_), bytes(run), int(number), *_):
            return None if number in (_HEAD, _PARTICIPANT) else range_end(TenantKeys(app, user).step_log(run))
    return key + b"\x00"
