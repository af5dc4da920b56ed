"""What the product logs becomes part of the event log, at virtual times."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from simulation.world import World
from zones.engines.errors import StoreError

_PRODUCT = "fairlead"


class VirtualRecord(logging.LogRecord):
    """A record that does not look at the real clock, nor at threads and processes."""

    def __init__(
        self, name: str, level: int, path: str, line: int, msg: Any, args: Any, exc_info: Any, *_: Any, **__: Any
    ) -> None:
        self.name, self.levelno, self.levelname = name, level, logging.getLevelName(level)
        self.msg, self.args, self.exc_info, self.exc_text = msg, args, exc_info, None


class IntoEventLog(logging.Handler):
    """Notes each record. An error of the product's own that it only logged is a finding."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler`."""
        self._world.note(f"logs {record.levelname} {record.getMessage()}")
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, StoreError):
            self._world.fail("no call fails by a bug", f"{record.getMessage()}: {error!r}")


@contextmanager
def product_log_into(world: World) -> Iterator[None]:
    """Send what the product logs into the world's event log, and nowhere else."""
    logger = logging.getLogger(_PRODUCT)
    handler = IntoEventLog(world)
    factory, level, propagate = logging.getLogRecordFactory(), logger.level, logger.propagate
    logging.setLogRecordFactory(VirtualRecord)
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
