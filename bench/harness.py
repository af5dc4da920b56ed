"""The parts of a load: items, tenants and rates; and the application in any process."""

import multiprocessing
import random
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from bench.handlers import app
from fairlead import App, Config
from fairlead.actors.settings import ConsumerSettings

T = TypeVar("T")

TENANT_APP = "bench"
PAYLOAD = random.Random(0).randbytes(200)
ITEMS_PER_TENANT = 2.5  # 50,000 items over 20,000 tenants.
SPAWN = multiprocessing.get_context("spawn")  # A fork would copy open stores and Ray's threads.


def tenants_of(items: int) -> int:
    """Return the number of tenants that `items` items are spread over."""
    return max(1, int(items / ITEMS_PER_TENANT))


def tenant_name(number: int) -> str:
    """Return a tenant's name. All names have the same length."""
    return f"tenant-{number:05d}"


def store_url(store: Path) -> str:
    """Return the url of the store of that path; see `bench.stores`."""
    return f"{'fdb' if store.is_file() else 'embedded'}:{store}"


def config_of(store: Path, *, shards: int = 1, **consumer: Any) -> Config:
    """Return the configuration of a fleet on one store. `consumer`: settings that are not the default.

    `shards`: with more than one, all are embedded, and the others lie beside `store`.
    """
    beside = {f"shard-{number}": store.with_name(f"{store.name}.{number}") for number in range(2, shards + 1)}
    urls = {name: store_url(each) for name, each in {"main": store, **beside}.items()}
    return Config(shards=urls, consumer=ConsumerSettings(**consumer))


def open_app(store: Path, *, shards: int = 1) -> App:
    """Return the application of this process, on `store` and on the other shards beside it."""
    app.configure(config_of(store, shards=shards))
    return app


def pace(per_s: float, seconds: float) -> Iterator[int]:
    """Yield 0, 1, 2, ... at their times. A late caller gets the missed numbers at once, so the load is not slowed."""
    started_s = time.monotonic()
    for number in range(int(per_s * seconds)):
        left_s = started_s + number / per_s - time.monotonic()
        if left_s > 0:
            time.sleep(left_s)
        yield number


# --- Processes ---


def run_in_process(function: Callable[..., T], *args: Any) -> T:
    """Run `function(*args)` in a fresh process, and return its result."""
    with ProcessPoolExecutor(1, SPAWN) as pool:
        return pool.submit(function, *args).result()


def run_in_processes(function: Callable[..., T], argument_lists: Sequence[tuple[Any, ...]]) -> list[T]:
    """Run one fresh process per list of arguments, all at the same time, and return their results.

    `function` calls `wait_for_all()` once it has prepared itself.
    """
    count = len(argument_lists)
    with ProcessPoolExecutor(count, SPAWN, initializer=_set_barrier, initargs=(SPAWN.Barrier(count),)) as pool:
        return [future.result() for future in [pool.submit(function, *args) for args in argument_lists]]


def wait_for_all() -> None:
    """Wait until all processes of `run_in_processes` have called this."""
    _barrier.wait(START_TIMEOUT_S)


START_TIMEOUT_S = 60.0
_barrier: Any = None


def _set_barrier(barrier: Any) -> None:
    global _barrier  # noqa: PLW0603 - a pool's processes get arguments only once, at their start
    _barrier = barrier
