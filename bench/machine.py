"""The machine under a measurement: the disk of the stores, its speed, and the other load."""

import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FSYNCS = 100
PAGE_BYTES = 4096


@contextmanager
def scratch() -> Iterator[Path]:
    """Yield an empty directory on the disk of the current directory, and delete it at the end.

    It is in the system's temporary directory only if that is on the same disk. Otherwise that directory may be in
    memory, where an fsync costs nothing.
    """
    here = Path.cwd()
    system = Path(tempfile.gettempdir())
    parent = system if system.stat().st_dev == here.stat().st_dev else here
    with tempfile.TemporaryDirectory(prefix="fairlead-bench-", dir=parent) as directory:
        yield Path(directory)


def describe(directory: Path) -> dict[str, Any]:
    """Return the properties of the machine that a reader needs to judge a figure. Takes some hundred fsyncs."""
    return {
        "cores": os.cpu_count(),
        "load_1m": round(os.getloadavg()[0], 2),
        "fsync_ms": round(fsync_ms(directory), 3),
        "python": ".".join(map(str, os.sys.version_info[:3])),  # type: ignore[attr-defined]
    }


def fsync_ms(directory: Path) -> float:
    """Return the median time, in milliseconds, to append a page to a file in `directory` durably."""
    path = directory / "fsync"
    with path.open("wb", buffering=0) as file:
        took_s = []
        for _ in range(FSYNCS):
            file.write(bytes(PAGE_BYTES))
            started_s = time.perf_counter()
            os.fdatasync(file.fileno())
            took_s.append(time.perf_counter() - started_s)
    path.unlink()
    return statistics.median(took_s) * 1000
