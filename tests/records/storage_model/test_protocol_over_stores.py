"""The whole protocol over stores of each kind, and of several kinds at once, with clients in threads."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from random import Random
from threading import Barrier, Lock

import pytest

from bench.peers.servers import Postgres
from fairlead.records.accesses import Access, ReadIndex, ReadRecord, run_op
from fairlead.records.errors import IndexUnavailable
from fairlead.records.storage_model.memory import MemoryStore
from fairlead.records.storage_model.performing import ModelStores
from fairlead.records.storage_model.record_store import RecordStore
from fairlead.records.stored import Versioned
from fairlead.zones.engines import StoreUnavailable
from tests.records.storage_model.cutting_proxy import Cut, CuttingProxy
from tests.records.storage_model.random_clients import PROTOCOL, RandomClient, alternate_keys, check_at_the_end
from tests.records.storage_model.stores import KINDS, MEMORY, ON_EMBEDDED, ON_MEMORY, POSTGRESQL, Stores

CLIENTS, OPERATIONS = 4, 50
HYBRIDS = [
    ((ON_EMBEDDED, ON_MEMORY), (POSTGRESQL, MEMORY)),
    ((POSTGRESQL, POSTGRESQL, ON_MEMORY), (ON_EMBEDDED,)),
    ((MEMORY,), (ON_MEMORY, ON_EMBEDDED, MEMORY)),
]
CUT_ONE_OF = 40  # messages to a server


def run_clients(clients: int, operations: int, stores: ModelStores) -> list[RandomClient]:
    """Let random clients run at once; return them."""
    with ThreadPoolExecutor(3 * clients) as parallel, ThreadPoolExecutor(clients) as threads:
        perform = partial(stores.perform_in_parallel, parallel)
        running = [threads.submit(RandomClient(number, perform).run, operations) for number in range(clients)]
        return [each.result() for each in running]


@pytest.mark.parametrize("kind", KINDS)
def test_records_stay_unique_valid_and_as_acknowledged_over_each_kind_of_store(kind: str, stores: Stores) -> None:
    opened = [stores.new(kind) for _ in range(4)]
    data, index = [each.one for each in opened[:2]], [each.one for each in opened[2:]]
    clients = run_clients(CLIENTS, OPERATIONS, ModelStores(data, index))
    assert all(client.unknown == 0 for client in clients)
    check_at_the_end([each.other for each in opened[:2]], [each.other for each in opened[2:]], clients)


@pytest.mark.parametrize(("of_data", "of_index"), HYBRIDS, ids=str)
def test_records_stay_so_where_data_and_index_stores_are_of_several_kinds(
    of_data: Sequence[str], of_index: Sequence[str], stores: Stores
) -> None:
    data, index = ([stores.new(kind).one for kind in kinds] for kinds in (of_data, of_index))
    clients = run_clients(CLIENTS, OPERATIONS, ModelStores(data, index))
    check_at_the_end(data, index, clients)


def test_records_stay_so_while_connections_are_cut(stores: Stores, postgresql: Postgres) -> None:
    random, lock = Random(5), Lock()

    def choose(message: bytes) -> Cut | None:
        with lock:
            is_startup = b"user" in message and b"database" in message
            return None if is_startup or random.randrange(CUT_ONE_OF) else random.choice(list(Cut))

    with CuttingProxy(postgresql.context.port) as proxy:
        dsn = f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres?sslmode=disable&gssencmode=disable"
        opened = [stores.table_through(dsn) for _ in range(4)]
        proxy.choose = choose
        data, index = [each.one for each in opened[:2]], [each.one for each in opened[2:]]
        clients = run_clients(CLIENTS, OPERATIONS, ModelStores(data, index))
        assert proxy.cuts
        assert any(client.unknown for client in clients)
        check_at_the_end([each.other for each in opened[:2]], [each.other for each in opened[2:]], clients)


# --- Carrying out accesses ---


class MeetingStore(MemoryStore):
    """A store whose reads wait for each other: all of them are under way at once."""

    def __init__(self, reads: int) -> None:
        super().__init__()
        self._gate = Barrier(reads)

    def get(self, key: bytes) -> Versioned | None:
        """See `RecordStore`."""
        self._gate.wait(20)
        return super().get(key)


class AwayStore(MemoryStore):
    """A store that does not answer reads."""

    def get(self, key: bytes) -> Versioned | None:
        """See `RecordStore`."""
        raise StoreUnavailable("it is away", remedy="Wait.")


def test_accesses_are_made_at_once_and_answered_in_their_order() -> None:
    index = MeetingStore(3)
    stores = ModelStores([MemoryStore()], [index])
    keys = alternate_keys()[:3]
    accesses: list[Access] = [ReadIndex(key) for key in keys]
    with ThreadPoolExecutor(3) as threads:
        assert stores.perform_in_parallel(threads, accesses) == [None, None, None]


@pytest.mark.parametrize("in_parallel", [True, False], ids=["in parallel", "one after the other"])
def test_an_index_store_that_does_not_answer_is_an_unavailable_index(in_parallel: bool) -> None:
    stores = ModelStores([MemoryStore()], [AwayStore()])
    away, there = ReadIndex(alternate_keys()[0]), ReadRecord("there")
    with ThreadPoolExecutor(2) as threads:
        perform = partial(stores.perform_in_parallel, threads) if in_parallel else stores.perform
        with pytest.raises(IndexUnavailable) as caught:
            run_op(PROTOCOL.find_op(away.index_key), perform)
        assert caught.value.fields == {"field": "name", "reason": "it is away"}
        assert run_op(PROTOCOL.get_op(there.key), perform) is None


def test_a_data_store_that_does_not_answer_is_no_matter_of_the_index() -> None:
    with pytest.raises(StoreUnavailable):
        run_op(PROTOCOL.get_op("key"), ModelStores([AwayStore()], [MemoryStore()]).perform)


def test_when_one_access_fails_the_others_end_before_the_operation_goes_on() -> None:
    data: RecordStore = MeetingStore(2)
    stores = ModelStores([data], [AwayStore()])
    accesses: list[Access] = [ReadIndex(alternate_keys()[0]), ReadRecord("one"), ReadRecord("other")]
    with ThreadPoolExecutor(3) as threads:
        failed, *answers = stores.perform_in_parallel(threads, accesses)
    assert isinstance(failed, IndexUnavailable)
    assert answers == [None, None]
