"""Settings of the stored queues: times that every process of a fleet must agree on.

Each has a unit in its name, a default with its reason, and the range that is accepted; simulation draws from the
extremes.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from fairlead.zones.errors import BadArgument

HOUR_MS: Final = 3600 * 1000
DAY_MS: Final = 24 * HOUR_MS
PAYLOAD_BYTES_MAX = 1_000_000  # A tenth of a FoundationDB transaction.
INLINE_PAYLOAD_BYTES_MAX = 8_192  # Longer payloads lie apart, so that a lease does not rewrite them.
PIECE_BYTES = 90_000  # Below FoundationDB's value limit of 100 kB.
TEXT_BYTES_MAX = 8_000  # Of a stored error or traceback.
WINDOW_KEYS = 512  # Index keys one dequeue looks at, from the front and again from where it last stopped.


@dataclass(frozen=True, slots=True)
class ZoneSettings:
    """Times of pointers and leases. All in milliseconds."""

    wake_slack_ms: Annotated[int, Meta(ge=1, le=10_000)] = 20
    """An enqueue leaves a pointer alone that vests at most this much later than its item.

    Larger saves conflicts on busy pointers, and delays items by as much."""

    min_inactive_ms: Annotated[int, Meta(ge=0, le=DAY_MS)] = 60_000
    """How long a zone must have been empty before its pointer is deleted (QuiCK Algorithm 2).

    A tenant that comes back sooner enqueues without making a pointer anew."""

    max_sleep_ms: Annotated[int, Meta(ge=100, le=DAY_MS)] = 300_000
    """The longest sleep of a pointer, unless all items of its zone wait longer than any lease lasts: then it is a day.

    A lost wake-up delays an item by at most this much, or by a day in such a zone."""

    max_pointer_lease_ms: Annotated[int, Meta(ge=10, le=HOUR_MS)] = 10_000
    """The longest lease of a pointer that an enqueue trusts its holder to end by itself."""

    max_item_lease_ms: Annotated[int, Meta(ge=100, le=DAY_MS)] = 600_000
    """The longest lease of an item, and the term of a claim. A lease that vests later than this from now, and than
    clocks may differ, is revoked."""

    max_skew_ms: Annotated[int, Meta(ge=3_000, le=HOUR_MS)] = 5_000
    """How far a consumer's clock may be off the shard's time before it takes no leases.

    The shard's time is as old as its last heartbeat, which comes once a second and may fail once or twice."""

    expiries_before_isolation: Annotated[int, Meta(ge=1, le=100)] = 3
    """After this many lease expiries in a row of attempts that had started, an item runs isolated.

    So it cannot take others down with it. The first expiry does not count: whether the attempt had started was not
    written."""

    @property
    def clocks_apart_us_max(self) -> int:
        """How far two clocks are apart at most that may both take leases: each `max_skew_ms` off the shard's time."""
        return 2 * self.max_skew_ms * 1000

    def __post_init__(self) -> None:
        check_ranges(self)


def check_ranges(settings: object) -> None:
    """Check each value of a dataclass against the type and range that its field declares.

    Only fields declared with `msgspec.Meta` or `Literal` are checked. A `float` field accepts a whole number.

    Raises:
      BadArgument: the first value that is refused, with its field and what the field accepts.
    """
    for name, declared in _checked_fields(type(settings)).items():
        value = getattr(settings, name)
        try:
            msgspec.convert(value, declared)
        except msgspec.ValidationError:
            raise BadArgument(argument=name, value=value, allowed=_allowed_values(declared)) from None


def _checked_fields(settings: type) -> dict[str, Any]:
    declared = get_type_hints(settings, include_extras=True)
    return {name: each for name, each in declared.items() if get_origin(each) in (Annotated, Literal)}


def _allowed_values(declared: Any) -> str:
    if get_origin(declared) is Literal:
        return ", ".join(get_args(declared))
    number, limits = get_args(declared)
    return f"{_NUMBERS[number]}, {limits.ge:,} to {limits.le:,}"


_NUMBERS: Final = {int: "a whole number", float: "a number"}
