"""The load of idle consumers on FoundationDB: reads and transactions of the client, per consumer and second.

    python -m bench.idle_reads --store fdb:FILE [--json] [--quick]

One, four and sixteen consumers run over a thousand delayed items. Reads are the reads of keys and ranges through the
client's binding, by all loops.
"""

import importlib
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import fairlead
from bench.report import Options, parser, say, show
from fairlead import fleet

DELAYED = 1_000
DELAY_S = 24 * 3600
SETTLE_S = 15.0  # By then all consumers know each other, and have scanned.
TENANT_APP = "idle"


def measure(url: str, *, consumers: list[int], idle_s: float) -> dict[str, Any]:
    """Return the reads of each consumer in a second, by the number of consumers."""
    app = fairlead.App(url)

    @app.handler("mail")
    def mail(job: fairlead.Job) -> None:
        """Do nothing; all items are delayed, so this never runs."""

    for number in range(DELAYED):
        app.tenant(TENANT_APP, str(number)).enqueue("mail", delay=DELAY_S, item_id=str(number))
    found = {}
    for count in consumers:
        say(f"{count} idle consumers")
        with ExitStack() as stack, counted() as calls:
            for _ in range(count):
                stack.enter_context(closing(_Running(fleet.start(app, "none:app", runtime="threads"))))
            time.sleep(SETTLE_S)
            calls.clear()
            time.sleep(idle_s)
            found[str(count)] = {name: round(each / idle_s / count, 2) for name, each in sorted(calls.items())}
    return found


class _Running:
    """A fleet that `close` stops."""

    def __init__(self, running: Any) -> None:
        self._running = running

    def close(self) -> None:
        self._running.stop(drain=0)


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """Count this process's calls of the binding."""
    impl: Any = importlib.import_module(
        "fairlead.zones.engines.foundationdb.engine"
    ).fdb.impl  # Needs the client library.
    calls: Counter[str] = Counter()
    get, get_range = impl.TransactionRead.get, impl.TransactionRead._get_range

    def counted_get(self: Any, key: Any) -> Any:
        calls["reads"] += 1
        return get(self, key)

    def counted_range(self: Any, *args: Any) -> Any:
        calls["reads"] += 1
        return get_range(self, *args)

    impl.TransactionRead.get, impl.TransactionRead._get_range = counted_get, counted_range
    try:
        yield calls
    finally:
        impl.TransactionRead.get, impl.TransactionRead._get_range = get, get_range


def main() -> None:
    """Measure and print."""
    arguments = parser(__doc__)
    arguments.add_argument("--store", required=True, help="a cluster of your own: fdb:FILE")
    parsed = arguments.parse_args()
    opts = Options(as_json=parsed.json, quick=parsed.quick)
    consumers, idle_s = ([1], 10.0) if opts.quick else ([1, 4, 16], 60.0)
    show(measure(parsed.store, consumers=consumers, idle_s=idle_s), opts, "Idle consumers on FoundationDB")


if __name__ == "__main__":
    main()
