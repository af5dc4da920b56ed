"""The cost of the ownership record, which every transaction on a tenant reads.

    python -m bench.olive owner [--json] [--quick] [--store fdb:CLUSTER_FILE] [--against CHECKOUT]

Two comparisons, each in turns, so that other load on the machine slows both sides:

    the read            `transact` as it is, beside the same `transact` whose transaction skips the read of the record:
                        blocks of calls of one process take turns
    CHECKOUT            with `--against`: processes of this checkout and of the other one take turns. They time the same
                        calls, an enqueue, and the drain of a store by a fleet of threads

A ratio is the median over the rounds, with the quartiles. `cpu ratio`: of the processor time of the process, which
other load changes less. `one read`: a read in a transaction that has a read version, so one round trip on FoundationDB.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import Any, NamedTuple
from unittest import mock

from bench import harness, owner_calls
from bench.harness import config_of, store_url
from bench.owner_calls import BODIES, VALUE
from bench.report import say
from bench.stores import Stores
from fairlead import App, TenantTransaction, tenant_database
from fairlead.tenant_database import TenantDatabase
from fairlead.zones.tenant_transaction import ApplicationTransaction, Key

ROUNDS, QUICK_ROUNDS = 20, 2
PAIRS_EACH = 20  # Blocks of each kind in a round.
BLOCK, QUICK_BLOCK = 5, 2  # Calls of a block; of reads on the embedded store, ten times as many.
AGAINST_ROUNDS, QUICK_AGAINST_ROUNDS = 10, 1
CALLS, QUICK_CALLS = 25, 3
ITEMS, QUICK_ITEMS = 10_000, 500
ONE_READ = "one read"
THE_READ = "without the read"
READ_BAR, QUEUE_BAR = 1.05, 1.03
QUEUE = ("enqueue", "drain")


class CheckoutNotUsed(Exception):
    """The process of a checkout has imported another fairlead."""


class WithoutOwnerRead(ApplicationTransaction):
    """A transaction that takes for granted that the tenant lives here and that nothing restricts it."""

    __slots__ = ()

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._owner_is_checked = self._owner_is_known = self._writes_plainly = True

    def get(self, key: Key, *, snapshot: bool = False) -> bytes | None:
        """See `TenantTransaction`."""
        value = super().get(key, snapshot=snapshot)
        self._note_answer()
        return value


def measure(stores: Stores, against: Path | None, quick: bool) -> list[dict[str, Any]]:
    """Return the rows of both comparisons."""
    rows: list[dict[str, Any]] = harness.run_in_process(of_the_read, stores.new("owner"), quick)
    if against is not None:
        rows += _of_checkouts(stores, against.resolve(), quick)
    return rows


# --- The read ---


def of_the_read(store: Path, quick: bool) -> list[dict[str, Any]]:
    """Compare transactions with the read of the record, and without it, in turns."""
    app = App(config=config_of(store, workers=1, slots=1))
    tenant = app.tenant("bench", "owner")
    tenant.transact(lambda tr: tr.set(("object", 1), VALUE))
    rows = []
    for what, body in BODIES.items():
        say(f"{what}, with the read of the ownership record and without it")
        block = QUICK_BLOCK if quick else BLOCK
        if what == "reads" and not store.is_file():
            block *= 10
        rounds = [_round(tenant, body, block) for _ in range(QUICK_ROUNDS if quick else ROUNDS)]
        rows.append(_row(what, THE_READ, rounds, READ_BAR))
    rows.append({**dict.fromkeys(rows[0]), "what": ONE_READ, "now_us": round(_one_read_us(tenant), 1)})
    app.close()
    return rows


class Side(NamedTuple):
    """Microseconds for a call, of the wall and of the processor."""

    us: float
    cpu_us: float


class Round(NamedTuple):
    """What was measured side by side."""

    now: Side
    before: Side


def _round(tenant: TenantDatabase, body: Callable[[Any], None], block: int) -> Round:
    now: list[Side] = []
    before: list[Side] = []
    for number in range(PAIRS_EACH):
        for without in (number % 2 == 0, number % 2 == 1):
            kind = WithoutOwnerRead if without else ApplicationTransaction
            with mock.patch.object(tenant_database, "ApplicationTransaction", kind):
                (before if without else now).append(_block(tenant, body, block))
    return Round(_usual(now), _usual(before))


def _block(tenant: TenantDatabase, body: Callable[[Any], None], block: int) -> Side:
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    for _ in range(block):
        tenant.transact(body)
    return Side(
        (time.perf_counter() - began_s) / block * 1e6,
        (time.process_time() - began_cpu_s) / block * 1e6,
    )


def _usual(sides: Sequence[Side]) -> Side:
    return Side(median(side.us for side in sides), median(side.cpu_us for side in sides))


def _one_read_us(tenant: TenantDatabase) -> float:
    took_us: list[float] = []

    def body(tr: TenantTransaction) -> None:
        tr.get(("object", 1))
        began_s = time.perf_counter()
        tr.get(("object", 2))
        took_us.append((time.perf_counter() - began_s) * 1e6)

    for _ in range(PAIRS_EACH * BLOCK):
        tenant.transact(body)
    return median(took_us)


def _row(what: str, beside: str, rounds: Sequence[Round], bar: float) -> dict[str, Any]:
    ratios = [each.now.us / each.before.us for each in rounds]
    low, _, high = quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    now, before = _usual([each.now for each in rounds]), _usual([each.before for each in rounds])
    return {
        "what": what,
        "beside": beside,
        "before_us": round(before.us, 1),
        "now_us": round(now.us, 1),
        "more_us": round(median(each.now.us - each.before.us for each in rounds), 1),
        "ratio": round(median(ratios), 3),
        "low": round(low, 3),
        "high": round(high, 3),
        "cpu_ratio": round(median(each.now.cpu_us / max(1e-9, each.before.cpu_us) for each in rounds), 3),
        "bar": bar,
        "load_1m": round(os.getloadavg()[0], 2),
    }


# --- Checkouts ---


def _of_checkouts(stores: Stores, against: Path, quick: bool) -> list[dict[str, Any]]:
    """Compare processes of this checkout and of an earlier one, in turns."""
    here, number = Path(__file__).resolve().parents[1], QUICK_AGAINST_ROUNDS if quick else AGAINST_ROUNDS
    found: dict[Path, list[dict[str, Side]]] = {here: [], against: []}
    for turn in range(number):
        say(f"this checkout and {against}, round {turn + 1} of {number}")
        for checkout in (here, against) if turn % 2 else (against, here):
            found[checkout].append(_calls(stores.new(f"{turn}-{checkout.name}"), checkout, quick))
    return [
        _row(
            what,
            _commit(against),
            [Round(now[what], before[what]) for now, before in zip(found[here], found[against], strict=True)],
            QUEUE_BAR if what in QUEUE else READ_BAR,
        )
        for what in found[here][0]
    ]


def _calls(store: Path, checkout: Path, quick: bool) -> dict[str, Side]:
    """Time the calls in a process of a checkout."""
    directory = store.parent
    shutil.copy(owner_calls.__file__, directory)
    sizes = (QUICK_CALLS, QUICK_ITEMS) if quick else (CALLS, ITEMS)
    ended = subprocess.run(
        [sys.executable, "-c", "import owner_calls; owner_calls.main()", store_url(store), *map(str, sizes)],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(checkout)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    printed = json.loads(ended.stdout.splitlines()[-1])
    if not Path(printed["file"]).resolve().is_relative_to(checkout):
        raise CheckoutNotUsed(f"{printed['file']} is not in {checkout}")
    return {what: Side(**took) for what, took in printed["took"].items()}


def _commit(checkout: Path) -> str:
    """Return the commit of a checkout, shortened."""
    command = ["git", "-C", str(checkout), "rev-parse", "--short=8", "HEAD"]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def table_of_costs(rows: list[dict[str, Any]]) -> list[list[str]]:
    """Return the table of the costs."""
    names = ("what", "beside", "before_us", "now_us", "more_us", "ratio", "low", "high", "cpu_ratio", "bar", "load_1m")
    head = ["transaction", "beside", "beside us", "us", "more us", "ratio", "low", "high", "cpu ratio", "bar", "load"]
    return [head, *(["" if row[name] is None else str(row[name]) for name in names] for row in rows)]
