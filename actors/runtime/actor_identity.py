"""The consumer of an actor, and the process that the actor runs in, as status pages show them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Identity:
    """A consumer's id, with the host, process and start time of the actor."""

    consumer_id: bytes
    host: str
    pid: int
    started_us: int
