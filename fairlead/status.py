"""The status of each shard: depths, ages, consumers, policies, and kinds without a consumer.

All reads are snapshot reads of counters and of bounded stretches of indexes. So a status costs the same with a million
tenants, and conflicts with nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fairlead.actors.housekeeping.unknown_kinds import unserved_of
from fairlead.move_views import moves_under_way
from fairlead.zones.engines import Reader, Stall, write_stall
from fairlead.zones.layout import ShardLayout, Tenant
from fairlead.zones.maintenance.quarantine import PARTS, quarantine_range
from fairlead.zones.pipelining import run_one
from fairlead.zones.policy import policies
from fairlead.zones.queue.dead_letters import dead_letter_index_range
from fairlead.zones.records import KindPolicy, TenantPolicy
from fairlead.zones.shard import Shard
from fairlead.zones.top_level import depth, sessions
from fairlead.zones.top_level.depth import Backlog
from fairlead.zones.top_level.pointers import UNREADABLE, scan
from fairlead.zones.top_level.sessions import ListedSession, SessionRecord
from fairlead.zones.transaction_runner import Attempt

COUNTED_MAX = 10_000  # Pointers and dead letters are counted up to this number; a shard may have millions.
TENANTS_LISTED_MAX = 100  # Tenants with policies.


@dataclass(frozen=True, slots=True)
class ShardStatus:
    """The status of one shard. Times in microseconds since the epoch.

    Attributes:
      depth: items in all queues by kind: waiting, delayed and leased ones, no dead letters. `depth_whole`: whether all
        kinds are included; of several thousand kinds only the first, by name, are.
      pointers: active queue zones; `vested`: those of them with due work. Both counted up to 10,000.
      waits: since when the oldest item waits, held back or not, and how many items a limit, a pause or an unknown kind
        holds back.
      dead_letters: counted up to 10,000.
      unreadable: queue zones, of those counted, in which the last dequeue found damaged records or records of a newer
        version.
      quarantined: damaged records in the quarantine, counted up to 3,333.
      moves: tenants that move from this shard to others, counted up to 1,000.
      consumers: the live ones, and those that died within the last minute.
      unserved: kinds with items and without a live consumer. Their items wait.
      paused: whether the shard is paused. `kind_policies`, `tenant_policies`: what operators have decided; of tenants,
        the first hundred.
      stall: the process that has blocked all writers for a second; None if there is none.
      error: why the shard could not be read; then all other fields are empty.
    """

    name: str
    url: str
    shard_id: str = ""
    part_count: int = 0
    depth: Mapping[str, int] = field(default_factory=dict)
    depth_whole: bool = True
    pointers: int = 0
    vested: int = 0
    waits: Backlog = field(default_factory=Backlog)
    dead_letters: int = 0
    unreadable: int = 0
    quarantined: int = 0
    moves: int = 0
    consumers: tuple[ListedSession, ...] = ()
    unserved: tuple[str, ...] = ()
    paused: bool = False
    kind_policies: Mapping[str, KindPolicy] = field(default_factory=dict)
    tenant_policies: Mapping[Tenant, TenantPolicy] = field(default_factory=dict)
    stall: Stall | None = None
    now_us: int = 0
    error: str | None = None

    @property
    def oldest_us(self) -> int | None:
        """Since when the oldest item waits; None: no item waits."""
        return self.waits.oldest_us


def slowest_loop(record: SessionRecord) -> tuple[str, int] | None:
    """Return the loop of a consumer that has gone longest without progress, and its age in microseconds.

    As of the consumer's last heartbeat, by the consumer's clock. None: the heartbeat names no loop.
    """
    ages_us = [(max(0, record.heartbeat_us - last_us), name) for name, last_us in record.loops.items()]
    if not ages_us:
        return None
    age_us, name = max(ages_us)
    return name, age_us


def read_status(shard: Shard, url: str) -> ShardStatus:
    """Return the status of a shard. Snapshot reads in one transaction; no writer blocks them.

    Raises:
      One of `shard.db.errors`: the shard cannot be read.
    """
    stall = write_stall(shard.db)  # Takes a second if there is a stall, so it stays outside the transaction.

    def body(attempt: Attempt) -> ShardStatus:
        tr, now_us, layout = attempt.tr, attempt.now_us, shard.layout
        waiting = depth.depth(tr, layout)
        marks = _marks(tr, layout)
        consumers = sessions.listing(tr, now_us=now_us)
        with_policy = policies.tenants_with_policies(tr, tenants_max=TENANTS_LISTED_MAX)
        in_force = policies.read_policies(tr)
        return ShardStatus(
            name=shard.name,
            url=url,
            shard_id=layout.shard_id.hex(),
            part_count=layout.part_count,
            depth=waiting.kinds,
            depth_whole=waiting.whole,
            pointers=len(marks),
            unreadable=sum(mark == UNREADABLE for mark in marks),
            quarantined=_count(tr, [quarantine_range()]) // PARTS,
            vested=_count_vested(tr, layout, now_us),
            waits=depth.backlog(tr, layout, now_us, paused=in_force.shard_paused),
            dead_letters=_count(tr, [dead_letter_index_range()]),
            moves=moves_under_way(tr).number,
            consumers=tuple(consumers),
            unserved=tuple(unserved_of(waiting.kinds, consumers)),
            paused=in_force.shard_paused,
            kind_policies={kind: policy for kind, policy in in_force.kinds.items() if policy.restricts_anything},
            tenant_policies=dict(with_policy),
            stall=stall,
            now_us=now_us,
        )

    return shard.transact(body)


def _marks(tr: Reader, layout: ShardLayout) -> list[bytes]:
    """Return the values of the pointers' index entries; see `pointers.move`."""
    marks: list[bytes] = []
    for part in layout.parts:
        if len(marks) < COUNTED_MAX:
            begin, end = part.vest_priority(0), part.vest_end()
            marks += [row.value for row in tr.snapshot.get_range(begin, end, limit=COUNTED_MAX - len(marks))]
    return marks


def _count(tr: Reader, ranges: list[tuple[bytes, bytes]]) -> int:
    count = 0
    for begin, end in ranges:
        if count < COUNTED_MAX:
            count += sum(1 for _ in tr.snapshot.get_range(begin, end, limit=COUNTED_MAX - count))
    return count


def _count_vested(tr: Reader, layout: ShardLayout, now_us: int) -> int:
    count = 0
    for part in layout.parts:
        if count < COUNTED_MAX:
            refs, _ = run_one(scan(tr, part, now_us=now_us, ids_max=COUNTED_MAX - count))
            count += len(refs)
    return count
