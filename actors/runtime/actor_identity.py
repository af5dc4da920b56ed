"""Who a consumer is, and where an actor of it lives: what people are told of it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Identity:
    """A consumer's id, and where the actor that bears this runs: host, process, since when."""

    consumer_id: bytes
    host: str
    pid: int
    started_us: int
