"""Settings of the stored queues: times that every process of a fleet must agree on.

Each has a unit in its name, a default with its reason, and the range that is accepted; simulation draws from the
extremes.
"""

from dataclasses import dataclass, fields

from fairlead.zones.errors import BadArgument

YEAR_MS = 365 * 24 * 3600 * 1000
DELAY_MS_MAX = 10 * YEAR_MS  # A longer delay is a unit mistaken.
PAYLOAD_BYTES_MAX = 1_000_000  # A tenth of a FoundationDB transaction.
INLINE_PAYLOAD_BYTES_MAX = 8_192  # Longer payloads lie apart, so that a lease does not rewrite them.
PIECE_BYTES = 90_000  # Below FoundationDB's value limit of 100 kB.
TEXT_BYTES_MAX = 8_000  # Of a stored error or traceback.
WINDOW_KEYS = 512  # Index keys one dequeue looks at, from the front and again from where it last stopped.


@dataclass(frozen=True, slots=True)
class ZoneSettings:
    """Times of pointers and leases. All in milliseconds."""

    wake_slack_ms: int = 20
    """An enqueue leaves a pointer alone that vests at most this much later than its item. 1 to 10,000.

    Larger saves conflicts on busy pointers, and delays items by as much."""

    min_inactive_ms: int = 60_000
    """How long a zone must have been empty before its pointer is deleted (QuiCK Algorithm 2). 0 to a day.

    A tenant that comes back sooner enqueues without making a pointer anew."""

    max_sleep_ms: int = 300_000
    """The longest sleep of a pointer; bounds whatever slips through. 100 to a day."""

    max_pointer_lease_ms: int = 10_000
    """The longest lease of a pointer that an enqueue trusts its holder to end by itself. 10 to an hour."""

    max_item_lease_ms: int = 600_000
    """The longest lease of an item; a lease that vests later than this from now may be revoked. 100 to a day."""

    max_skew_ms: int = 5_000
    """How far a consumer's clock may be off the shard's time before it takes no leases. 3,000 to an hour.

    The shard's time is as old as its last beat, which comes once a second and may fail once or twice."""

    lapses_before_alone: int = 3
    """After this many lapses in a row of attempts that had started, an item runs isolated. 1 to 100.

    So it cannot take others down with it. The first lapse does not count: nobody wrote whether it had started."""

    @property
    def clocks_apart_us_max(self) -> int:
        """How far two clocks are apart at most that may both take leases: each `max_skew_ms` off the shard's time."""
        return 2 * self.max_skew_ms * 1000

    def __post_init__(self) -> None:
        for field in fields(self):
            low, high = _RANGES[field.name]
            value = getattr(self, field.name)
            if not isinstance(value, int) or not low <= value <= high:
                raise BadArgument(argument=field.name, value=value, allowed=f"{low} to {high}")


_DAY_MS = 24 * 3600 * 1000
_RANGES = {
    "wake_slack_ms": (1, 10_000),
    "min_inactive_ms": (0, _DAY_MS),
    "max_sleep_ms": (100, _DAY_MS),
    "max_pointer_lease_ms": (10, 3_600_000),
    "max_item_lease_ms": (100, _DAY_MS),
    "max_skew_ms": (3_000, 3_600_000),
    "lapses_before_alone": (1, 100),
}
