"""Moves of tenants as plain data, for programs, commands and pages."""

from dataclasses import dataclass
from typing import NamedTuple

from fairlead.formatting import size
from fairlead.zones.engines import Reader
from fairlead.zones.keyspace import TenantKeys
from fairlead.zones.layout import Tenant
from fairlead.zones.moving.source import list_moves, read_move, read_owner
from fairlead.zones.records import MovePhase, MoveRecord, MoveState
from fairlead.zones.shard import Shard

MB = 1_000_000
UNDER_WAY = "under way"


COUNTED_MAX = 1_000  # So many moves of a shard are read to count those under way.


class MovesUnderWay(NamedTuple):
    """The moves away from a shard that are under way: how many, and how much they have copied."""

    number: int = 0
    copied_bytes: int = 0


@dataclass(frozen=True, slots=True)
class MoveView:
    """How a move stands. Times in seconds, or seconds since the epoch.

    Attributes:
      id: of the move, and of the local item that carries it out on the source.
      source, destination: the names of the shards.
      state: "under way", "moved", "cancelled" or "failed".
      stage: what it does now, in words; empty before it has begun and after it has ended.
      held_up: why no worker carries it out now, in words; empty: a worker does, or nobody has looked.
      copied_bytes, total_bytes: those of a second copy included; total: when it began, 0 while that is being measured.
      rounds: how often what had changed meanwhile was copied.
      frozen: how long transactions on the tenant waited at the end.
      slowed: how long each writer of the tenant waited after its commit, at most, so that the move catches up.
      mb_per_s: how fast it copies at most, megabytes per second.
      cancel_requested: whether it is to be taken back.
      error: why it failed, or was cancelled.
    """

    tenant: Tenant
    id: bytes
    source: str
    destination: str
    state: str
    stage: str
    held_up: str
    copied_rows: int
    copied_bytes: int
    total_rows: int
    total_bytes: int
    rounds: int
    frozen: float
    slowed: float
    mb_per_s: float
    cancel_requested: bool
    began: float
    ended: float | None
    error: str

    @property
    def is_under_way(self) -> bool:
        """Whether it has not ended."""
        return self.state == UNDER_WAY

    @property
    def fraction(self) -> float:
        """How much has been copied, 0 to 1."""
        if self.state == "moved":
            return 1.0
        return min(1.0, self.copied_bytes / self.total_bytes) if self.total_bytes else 0.0

    @property
    def longest_wait(self) -> float:
        """How long a transaction on the tenant has waited for the move, at most."""
        return max(self.frozen, self.slowed)

    @property
    def now(self) -> str:
        """How the move stands, in one line: what it does, how much has been copied, what holds it up."""
        if not self.is_under_way:
            return f"{self.state}: {self.error}" if self.error else self.state
        parts = ["being cancelled" if self.cancel_requested else "", self.stage or "has not begun"]
        if self.total_bytes:
            parts.append(f"{self.fraction:.0%}, {size(self.copied_bytes)} of {size(self.total_bytes)}")
        return "; ".join(filter(None, (*parts, self.held_up)))


_STATES = {
    MoveState.UNDER_WAY: UNDER_WAY,
    MoveState.MOVED: "moved",
    MoveState.CANCELLED: "cancelled",
    MoveState.FAILED: "failed",
}


def move_view(shard: str, tenant: Tenant, record: MoveRecord, *, held_up: str = "") -> MoveView:
    """Return a move away from a shard as plain data. `held_up`: see `MoveView`."""
    return MoveView(
        tenant=tenant,
        id=record.move_id,
        source=shard,
        destination=record.destination,
        state=_STATES[record.state],
        stage=record.stage,
        held_up=held_up,
        copied_rows=record.copied_rows,
        copied_bytes=record.copied_bytes,
        total_rows=record.total_rows,
        total_bytes=record.total_bytes,
        rounds=record.rounds,
        frozen=record.frozen_us / 1e6,
        slowed=record.slowed_us / 1e6,
        mb_per_s=record.bytes_per_s / MB,
        cancel_requested=record.cancel_requested,
        began=record.began_us / 1e6,
        ended=record.ended_us / 1e6 if record.ended_us else None,
        error=record.error,
    )


def move_in_words(tr: Reader, shard: Shard, tenant: Tenant) -> str:
    """Return where a tenant moves, and how far it is; empty: it does not move. Snapshot reads."""
    keys = TenantKeys(*tenant)
    owner = read_owner(shard.layout, keys, tr.snapshot.get(keys.owner).value)
    if owner is None or owner.move is None:
        return ""
    record = read_move(tr, tenant)
    if owner.move.phase is MovePhase.ARRIVING or record is None:
        return "it has moved to this shard, which still lists its queues; its items run meanwhile"
    return f"to shard {record.destination}: {move_view(shard.name, tenant, record).now}; its items run meanwhile"


def moves_under_way(tr: Reader) -> MovesUnderWay:
    """Count the moves of a shard that are under way, among its first `COUNTED_MAX` by tenant. Snapshot reads."""
    records = [record for _, record in list_moves(tr, moves_max=COUNTED_MAX) if record.state is MoveState.UNDER_WAY]
    return MovesUnderWay(len(records), sum(record.copied_bytes for record in records))
