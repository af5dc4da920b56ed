"""The product's log records become lines of the event log, at virtual times."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from fairlead.actors.telemetry.errors import USERS_ERROR
from fairlead.simulation.world import InjectedError, World
from fairlead.zones.engines.api.errors import StoreError

_PRODUCT = "fairlead"


_BLANK = vars(logging.LogRecord("", 0, "", 0, "", (), None)) | {"process": 0, "thread": 0, "processName": "MainProcess"}


class VirtualRecord(logging.LogRecord):
    """A log record without real time, threads and processes."""

    def __init__(
        self, world: World, name: str, level: int, path: str, line: int, msg: Any, args: Any, exc_info: Any,
        func: str | None = None, sinfo: str | None = None, **_: Any,
    ) -> None:  # fmt: skip
        by_name = bool(args) and len(args) == 1 and isinstance(args[0], Mapping)
        vars(self).update(_BLANK, name=name, levelno=level, levelname=logging.getLevelName(level), exc_info=exc_info)
        vars(self).update(msg=msg, args=args[0] if by_name else args, funcName=func, stack_info=sinfo)
        vars(self).update(pathname=path, filename=Path(path).name, module=Path(path).stem, lineno=line)
        now_ms, elapsed_ms = world.now_us() / 1000, world.elapsed_us / 1000
        vars(self).update(created=now_ms / 1000, msecs=now_ms % 1000, relativeCreated=elapsed_ms)


class EventLogHandler(logging.Handler):
    """A handler that notes each record. A logged error of the product is a violation; an error of user code is not."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler`."""
        self._world.note(f"logs {record.levelname} {record.getMessage()}")
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, StoreError | InjectedError) and not hasattr(record, USERS_ERROR):
            self._world.fail("no call fails by a bug", f"{record.getMessage()}: {error!r}")


@contextmanager
def product_log_captured(world: World) -> Iterator[None]:
    """Send the product's log records into the world's event log, and nowhere else."""
    logger = logging.getLogger(_PRODUCT)
    handler = EventLogHandler(world)
    factory, level, propagate = logging.getLogRecordFactory(), logger.level, logger.propagate
    logging.setLogRecordFactory(partial(VirtualRecord, world))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate
        logging.setLogRecordFactory(factory)
