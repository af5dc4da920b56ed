"""The result of an operation on many dead letters, and its target in the audit log."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from fairlead.zones.queue.dead_letter_search import DeadLetterFilter
from fairlead.zones.queue.dead_letters import DeadLetter


@dataclass(slots=True)
class BulkResult:
    """The result of a bulk operation.

    `count`: items retried or discarded, in all and `by_kind`. `scanned`: dead letters that were read. `complete`:
    whether the operation reached the end.
    """

    count: int = 0
    scanned: int = 0
    by_kind: Counter[str] = field(default_factory=Counter)
    complete: bool = True

    def add(self, items: Sequence[DeadLetter]) -> None:
        """Count further items."""
        self.count += len(items)
        self.by_kind.update(item.record.item.kind for item in items)


GoOn = Callable[[BulkResult], bool]


def filter_as_target(criteria: DeadLetterFilter) -> dict[str, Any]:
    """Return a filter as the target of an audit entry."""
    target = {key: value for key, value in criteria._asdict().items() if value is not None}
    if criteria.tenant is not None:
        target["tenant"] = list(criteria.tenant)
    return target
