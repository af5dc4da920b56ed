"""The options of a load: tenants, rates, items and durations."""

from dataclasses import dataclass, fields

from fairlead.zones.errors import BadArgument

UNIFORM, PARETO = "uniform", "pareto"
SKEWS = (UNIFORM, PARETO)


@dataclass(frozen=True, slots=True)
class Load:
    """A load. Each field has its unit, its default, and the range that is checked."""

    tenants: int = 1_000
    """Tenants, each with a queue zone. 1 to 10^7."""

    enqueues_per_s: float = 50.0
    """Enqueues per second of all tenants together, at times drawn as of a Poisson process. Above 0, to 10^6."""

    items: int = 1
    """Items per enqueue, which share a transaction. 1 to 100. The paper has 1 to 4."""

    skew: str = UNIFORM
    """Whose turn it is: "uniform", all tenants alike, or "pareto", by weights of a Pareto distribution with the
    paper's alpha of log_4 5, where a fifth of the tenants enqueues four fifths of the items."""

    work_ms: int = 50
    """How long the handler of an item takes, asleep. 0 to 60,000. 50 is the paper's."""

    seconds: float = 30.0
    """For how long it is measured. Above 0, to a day."""

    warm_s: float = 5.0
    """For how long the same load runs before that, unmeasured. 0 to an hour."""

    seed: int = 0
    """Of all draws: the same load again has the same tenants at the same times. 0 to 2^63."""

    def __post_init__(self) -> None:
        for field in fields(self):
            if field.name in _RANGES:
                low, high = _RANGES[field.name]
                value = getattr(self, field.name)
                if not low <= value <= high:
                    raise BadArgument(argument=field.name, value=value, allowed=f"{low:,} to {high:,}")
        if self.skew not in SKEWS:
            raise BadArgument(argument="skew", value=self.skew, allowed=" or ".join(SKEWS))

    @property
    def items_per_s(self) -> float:
        """Items per second of all tenants."""
        return self.enqueues_per_s * self.items


_RANGES: dict[str, tuple[float, float]] = {
    "tenants": (1, 10_000_000),
    "enqueues_per_s": (1e-3, 1_000_000),
    "items": (1, 100),
    "work_ms": (0, 60_000),
    "seconds": (0.1, 86_400),
    "warm_s": (0, 3_600),
    "seed": (0, 1 << 63),
}
