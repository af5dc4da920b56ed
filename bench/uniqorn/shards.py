"""Our own shards as systems: `app.records` over their stores, and one table with unique indexes on one of them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from bench.figures import Row
from bench.harness import store_url
from bench.report import percentile
from bench.uniqorn.measuring import Sizes, run_rounds
from bench.uniqorn.systems import TAIL, Aborted, Carried, Latencies, System, figures, fill
from bench.uniqorn.workload import Kind, Request, Workload
from fairlead import App, Records
from fairlead.records.errors import RecordError
from fairlead.zones.tenant_transaction import TenantTransaction

FIELDS = ("ak0", "ak1")
TABLE = "bench/table"


class OverShards:
    """Records of an application. Index records of dropped keys are deleted in the background, as for users."""

    name = "records"

    def __init__(self, app: App) -> None:
        self._records: Records[dict[str, Any]] = app.records("person", unique=FIELDS)

    def carry_out(self, request: Request) -> Carried:
        """See `System`."""
        try:
            return self._carry_out(request)
        except RecordError as error:
            raise Aborted from error

    def _carry_out(self, request: Request) -> Carried:
        records = self._records
        match request.kind:
            case Kind.CREATE:
                records.create(request.key, _value(request))
                return Carried()
            case Kind.CREATE_BARE:
                made = records.create(request.key, {"value": request.value})
                return Carried(cleanup=lambda: records.delete(made))
            case Kind.READ:
                return Carried(records.find(**_wanted(request)) is not None)
            case Kind.UPDATE | Kind.UPDATE_VALUE:
                read = records.get(request.key)
                if read is None:
                    return Carried(found=False)
                changes = _value(request) if request.kind is Kind.UPDATE else {"value": request.value}
                records.update(read, {**read.value, **changes})
                return Carried()
            case Kind.DELETE:
                found = records.find(**_wanted(request))
                if found is not None:
                    records.delete(found)
                return Carried(found is not None)


class OneTenant:
    """One table with a unique index for each field: the keys of one tenant, changed by its transactions."""

    name = "one tenant"

    def __init__(self, app: App) -> None:
        self._tenant = app.tenant(TABLE)

    def carry_out(self, request: Request) -> Carried:
        """See `System`."""
        match request.kind:
            case Kind.CREATE | Kind.CREATE_BARE:
                self._tenant.transact(lambda tr: _insert(tr, request))
                return Carried(cleanup=self._removal(request.key) if request.kind is Kind.CREATE_BARE else None)
            case Kind.READ:
                return Carried(self._tenant.transact(lambda tr: _find(tr, request)) is not None)
            case Kind.UPDATE | Kind.UPDATE_VALUE:
                return Carried(self._tenant.transact(lambda tr: _update(tr, request)))
            case Kind.DELETE:
                return Carried(self._tenant.transact(lambda tr: _delete_found(tr, request)))

    def _removal(self, key: str) -> Callable[[], None]:
        return lambda: self._tenant.transact(lambda tr: _delete(tr, key))


ONE_TENANT, ONE_SHARD, THREE_SHARDS = "one tenant", "records, one shard", "records, three shards"
SYSTEMS = (ONE_TENANT, ONE_SHARD, THREE_SHARDS)
STORES = 5  # A store belongs to one application, which has one, one, and three of them.
THREADS = (1, 4)


def measure(stores: Sequence[Path], sizes: Sizes) -> list[Row]:
    """Return a row for each kind of requests and number of threads: the figures of each system, and their ratios.

    A ratio is that of the p99 to one tenant's: the median of the rounds' own.

    Args:
      stores: `STORES` new ones; see `bench.stores`.
    """
    rows: list[Row] = []
    with opened(stores[:1]) as alone, opened(stores[1:2]) as one, opened(stores[2:]) as three:
        systems: dict[str, System] = {
            ONE_TENANT: OneTenant(alone),
            ONE_SHARD: OverShards(one),
            THREE_SHARDS: OverShards(three),
        }
        for system in systems.values():
            fill(system, Workload(Random(1), pool=sizes.pool), sizes.pool // 2)
        for threads in THREADS:
            rounds = run_rounds(systems, sizes._replace(threads=threads), tuple(Kind))
            rows += [_row(rounds, kind, threads) for kind in Kind]
    return rows


def _row(rounds: Mapping[str, Sequence[Latencies]], kind: Kind, threads: int) -> Row:
    row: Row = {"operation": kind.value, "threads": threads}
    for name in SYSTEMS:
        pairs = [
            (base.done_ms.get(kind), ours.done_ms.get(kind))
            for base, ours in zip(rounds[ONE_TENANT], rounds[name], strict=True)
        ]
        ratios = [percentile(ours, TAIL) / percentile(base, TAIL) for base, ours in pairs if base and ours]
        halves = [percentile(ours, 50) / percentile(base, 50) for base, ours in pairs if base and ours]
        row[name] = {
            **figures(rounds[name], kind),
            "p99_ratio": round(median(ratios), 2) if ratios else None,
            "p50_ratio": round(median(halves), 2) if halves else None,
        }
    return row


@contextmanager
def opened(stores: Sequence[Path]) -> Iterator[App]:
    """An application with a shard for each of the stores."""
    app = App({store.name: store_url(store) for store in stores})
    try:
        yield app
    finally:
        app.close()


def _value(request: Request) -> dict[str, Any]:
    return {"value": request.value, **dict(zip(FIELDS, request.names, strict=False))}


def _wanted(request: Request) -> dict[str, str]:
    return {FIELDS[request.field]: request.names[request.field]}


def _insert(tr: TenantTransaction, request: Request) -> None:
    if tr.get(("record", request.key)) is not None:
        raise Aborted
    _take(tr, request)
    tr.set(("record", request.key), _packed(request.names, request.value))


def _take(tr: TenantTransaction, request: Request) -> None:
    for field, name in zip(FIELDS, request.names, strict=False):
        owner = tr.get(("index", field, name))
        if owner is not None and owner != request.key.encode():
            raise Aborted
        tr.set(("index", field, name), request.key.encode())


def _find(tr: TenantTransaction, request: Request) -> str | None:
    owner = tr.get(("index", FIELDS[request.field], request.names[request.field]))
    if owner is None:
        return None
    assert tr.get(("record", owner.decode())) is not None
    return owner.decode()


def _update(tr: TenantTransaction, request: Request) -> bool:
    stored = tr.get(("record", request.key))
    if stored is None:
        return False
    names = _names(stored)
    if request.kind is Kind.UPDATE:
        _drop(tr, names)
        _take(tr, request)
        names = request.names
    tr.set(("record", request.key), _packed(names, request.value))
    return True


def _delete_found(tr: TenantTransaction, request: Request) -> bool:
    key = _find(tr, request)
    if key is not None:
        _delete(tr, key)
    return key is not None


def _delete(tr: TenantTransaction, key: str) -> None:
    stored = tr.get(("record", key))
    if stored is not None:
        _drop(tr, _names(stored))
        tr.clear(("record", key))


def _drop(tr: TenantTransaction, names: tuple[str, ...]) -> None:
    for field, name in zip(FIELDS, names, strict=False):
        tr.clear(("index", field, name))


def _packed(names: tuple[str, ...], value: bytes) -> bytes:
    return "\x00".join(names).encode() + b"\xff" + value


def _names(stored: bytes) -> tuple[str, ...]:
    names = stored.partition(b"\xff")[0].decode()
    return tuple(names.split("\x00")) if names else ()
