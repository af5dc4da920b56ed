"""Loads: which items, of which tenants, how often; and the application that carries them, in any process."""

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
SPAWN = multiprocessing.get_context("spawn")  # A fork would carry open stores and Ray's threads along.


def tenants_of(items: int) -> int:
    """Return over how many tenants so many items are spread."""
    return max(1, int(items / ITEMS_PER_TENANT))


def tenant_name(number: int) -> str:
    """Return a tenant's name; all of them are equally long."""
    return f"tenant-{number:05d}"


def store_url(store: Path) -> str:
    """Return the url of the store of that path; see `bench.stores`."""
    return f"{'fdb' if store.is_file() else 'embedded'}:{store}"


def config_of(store: Path, *, shards: int = 1, **consumer: Any) -> Config:
    """Return the configuration of a fleet on one store; `consumer`: settings that are not the default.

    Of several `shards`, all of them embedded, the others lie beside `store`.
    """
    beside = {f"shard-{number}": store.with_name(f"{store.name}.{number}") for number in range(2, shards + 1)}
    urls = {name: store_url(each) for name, each in {"main": store, **beside}.items()}
    return Config(shards=urls, consumer=ConsumerSettings(**consumer))


def open_app(store: Path, *, shards: int = 1) -> App:
    """Return the application of this process, on `store`, and on more of them beside it."""
    app.configure(config_of(store, shards=shards))
    return app


def pace(per_s: float, seconds: float) -> Iterator[int]:
    """Yield 0, 1, 2, ... at their times. A late caller gets the missed ones at once: the load does not wait for us."""
    started_s = time.monotonic()
    for number in range(int(per_s * seconds)):
        left_s = started_s + number / per_s - time.monotonic()
        if left_s > 0:
            time.sleep(left_s)
        yield number


# --- Processes ---


def run_in_process(function: Callable[..., T], *args: Any) -> T:
    """Return `function(*args)`, run in a fresh process, which then ends."""
    with ProcessPoolExecutor(1, SPAWN) as pool:
        return pool.submit(function, *args).result()


def run_in_processes(function: Callable[..., T], argument_lists: Sequence[tuple[Any, ...]]) -> list[T]:
    """Return the results of one fresh process per list of arguments, which run at the same time.

    `function` calls `wait_for_all()` once it has prepared itself.
    """
    count = len(argument_lists)
    with ProcessPoolExecutor(count, SPAWN, initializer=_set_barrier, initargs=(SPAWN.Barrier(count),)) as pool:
        return [future.result() for future in [pool.submit(function, *args) for args in argument_lists]]


def wait_for_all() -> None:
    """Return when all processes of `run_in_processes` have come so far."""
    _barrier.wait(START_TIMEOUT_S)


START_TIMEOUT_S = 60.0
_barrier: Any = None


def _set_barrier(barrier: Any) -> None:
    global _barrier  # noqa: PLW0603 - a pool's processes can be told something only once, at their start
    _barrier = barrier
