"""Carries out accesses of the protocol on shards: those of one shard in one transaction, those of several in parallel.

A slot, or a tenant that holds records, may move meanwhile: a shard that refuses has changed nothing, and the accesses
are made where the tenant lives now.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

from fairlead.records.accesses import (
    Access,
    AtOnce,
    DeleteAtOnce,
    DeleteIndex,
    EndWriters,
    IndexAccess,
    ListIndex,
    LookUp,
    ReadIndex,
    ReadRecord,
    WriteAtOnce,
    WriteIndex,
)
from fairlead.records.alternate_keys import field_of
from fairlead.records.definition import TypeRecord
from fairlead.records.errors import IndexAway, IndexUnavailable, RecordError
from fairlead.records.on_shards.slots import Locations
from fairlead.records.on_shards.transaction import OnSeveralShards, RecordTransaction
from fairlead.zones.engines import StoreUnavailable
from fairlead.zones.engines.api.errors import IO_ERROR, TRANSACTION_TIMED_OUT, error_code
from fairlead.zones.errors import Restoring, ShardRefused, TenantMoved
from fairlead.zones.layout import Tenant
from fairlead.zones.shard import Shard
from fairlead.zones.transaction_runner import Attempt

T = TypeVar("T")

RESTORED = "the record that has the value, or had it, is being restored to a snapshot"
MOVES_MAX = 8  # So often accesses follow tenants that move meanwhile.
AWAY_CODES = frozenset({TRANSACTION_TIMED_OUT, IO_ERROR})


class Homes(Protocol):
    """The shards of an application, as far as records use them."""

    def __getitem__(self, name: str, /) -> Shard:
        """Return a shard, opened."""
        ...

    def home_name(self, tenant: Tenant) -> str:
        """Return the name of the shard where a tenant was last found, or of its first home."""
        ...

    def note_moved(self, moved: TenantMoved) -> bool:
        """Note where a tenant lives now; False: there is no other shard to ask."""
        ...

    def errors(self) -> set[type[Exception]]:
        """Return the classes that the stores opened so far raise."""
        ...


class Outcome(NamedTuple):
    """What a call has returned, or raised."""

    answers: list[Any]
    error: Exception | None = None


RunAll = Callable[[Sequence[Callable[[], Outcome]]], list[Outcome]]  # runs calls, in parallel or one after the other


def run_in_order(calls: Sequence[Callable[[], Outcome]]) -> list[Outcome]:
    """Run calls one after the other."""
    return [call() for call in calls]


class ShardRecords:
    """Carries out accesses on the records of one type.

    Args:
      definition: by which a writer has computed keys; None: nothing is written but index records, and bumps.
      run_all: runs calls on several shards.
      transaction: makes the transaction that carries out accesses on a shard.
    """

    def __init__(
        self,
        homes: Homes,
        locations: Locations,
        definition: TypeRecord | None,
        run_all: RunAll = run_in_order,
        transaction: Callable[..., RecordTransaction] = RecordTransaction,
    ) -> None:
        self._homes = homes
        self._locations = locations
        self._definition = definition
        self._run_all = run_all
        self._transaction = transaction

    def perform(self, accesses: Sequence[Access]) -> list[Any]:
        """Make accesses; return their answers in order. An index that does not answer is `IndexAway`.

        So is a record that an index record names, if its shard does not answer, or its tenant is being restored: the
        key can be taken neither way. A user who looks for it gets `IndexUnavailable` while the tenant is restored.

        Raises:
          SchemaChanged: see `RecordTransaction`; nothing was written on that shard.
          StoreError, or what the store raises: a shard with a data record does not answer.
          Restoring: the tenant of a record that the caller names by its key is being restored.
          TenantMoved: a tenant moves on and on, or lives on a shard that is not configured.
        """
        match accesses:
            case [WriteAtOnce() | DeleteAtOnce() as access] if self._is_spread(access):
                return [AtOnce.SPREAD]
        answers: list[Any] = [None] * len(accesses)
        pending = list(range(len(accesses)))
        for round_number in range(MOVES_MAX):
            by_shard: dict[str, list[int]] = {}
            for number in pending:
                by_shard.setdefault(self._homes.home_name(self._tenant(accesses[number])), []).append(number)
            groups = list(by_shard.items())
            calls = [partial(self._on_shard, name, [accesses[n] for n in numbers]) for name, numbers in groups]
            pending = []
            for (name, numbers), outcome in zip(groups, self._run_all(calls), strict=True):
                error = outcome.error
                is_last = round_number + 1 == MOVES_MAX
                if isinstance(error, TenantMoved) and not is_last and self._homes.note_moved(error):
                    pending.extend(numbers)
                    continue
                for at, number in enumerate(numbers):
                    if error is None:
                        answers[number] = outcome.answers[at]
                    else:
                        answers[number] = self._answer_of(accesses[number], error, name)
            if not pending:
                break
        return answers

    def _on_shard(self, name: str, accesses: Sequence[Access]) -> Outcome:
        """Make accesses in one transaction on one shard; return what may be answered, or is the error of some."""
        try:
            shard = self._homes[name]
            return Outcome(shard.transact(lambda attempt: self._answers(shard, attempt, accesses)))
        except OnSeveralShards:
            return Outcome([AtOnce.SPREAD] * len(accesses))
        except (TenantMoved, Restoring, RecordError, ShardRefused, StoreUnavailable) as error:
            return Outcome([], error)
        except tuple(self._homes.errors()) as error:
            return Outcome([], error)

    def _answers(self, shard: Shard, attempt: Attempt, accesses: Sequence[Access]) -> list[Any]:
        def lives_here(tenant: Tenant) -> bool:
            return self._homes.home_name(tenant) == shard.name

        transaction = self._transaction(shard, attempt, self._locations, self._definition, lives_here)
        return [transaction.answer(access) for access in accesses]

    def _is_spread(self, access: WriteAtOnce | DeleteAtOnce) -> bool:
        """Say whether what a write touches lies on several shards, as far as this process knows. Opens nothing."""
        home = self._homes.home_name(self._locations.data_tenant(access.key))
        keys = access.record.keys if isinstance(access, WriteAtOnce) else access.expected.keys
        return any(self._homes.home_name(self._locations.index_tenant(each)) != home for each in keys)

    def _tenant(self, access: Access) -> Tenant:
        match access:
            case ReadIndex(index_key) | LookUp(index_key) | WriteIndex(index_key) | DeleteIndex(index_key):
                return self._locations.index_tenant(index_key)
            case ListIndex(value_part):
                return self._locations.index_tenant(value_part)
            case EndWriters(_, entry):
                return self._locations.data_tenant(entry.key)
            case _:
                return self._locations.data_tenant(access.key)

    def _answer_of(self, access: Access, error: Exception, shard_name: str) -> RecordError | AtOnce:
        """Return what a refused access answers.

        Raises:
          `error`: it is none that the protocol knows.
        """
        if isinstance(error, RecordError):
            return error
        if isinstance(error, Restoring):
            return self._answer_while_restoring(access, error, shard_name)
        if isinstance(access, IndexAccess | EndWriters) and is_away(error):
            return IndexAway(field=field_of(_indexed(access)), shard=shard_name, reason=str(error))
        raise error

    def _answer_while_restoring(self, access: Access, error: Restoring, shard_name: str) -> RecordError | AtOnce:
        """Return what an access answers that has met a tenant that is being restored. Whose that is is not said.

        Raises:
          `error`: the caller has named a record of the tenant by its key.
        """
        match access:
            case LookUp() | ListIndex():
                return IndexUnavailable(field=field_of(_indexed(access)), reason=RESTORED)
            case ReadRecord(_, found_by) if found_by:
                return IndexUnavailable(field=field_of(found_by), reason=RESTORED)
            case WriteAtOnce(key) | DeleteAtOnce(key) if self._locations.data_tenant(key) != error.tenant:
                return AtOnce.REFUSED  # The slow path meets the tenant apart from the caller's own.
            case EndWriters() | ReadIndex() | WriteIndex() | DeleteIndex():
                return IndexAway(field=field_of(_indexed(access)), shard=shard_name, reason=RESTORED)
        raise error


def is_away(error: Exception) -> bool:
    """Say whether an error means that a shard does not answer now."""
    return isinstance(error, StoreUnavailable | ShardRefused) or error_code(error) in AWAY_CODES


def _indexed(access: IndexAccess | EndWriters) -> bytes:
    return access.value_part if isinstance(access, ListIndex) else access.index_key
