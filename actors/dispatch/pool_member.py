"""One worker as its manager sees it: its last report, and what was sent to it since.

What a worker was sent lately is remembered for `reclaim`. Each item is sent to one incarnation of the worker, and no
other accepts it. So once that incarnation has ended, nobody runs the item.
"""

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from fairlead.actors.messages import ItemRef, Report
from fairlead.zones.probes import probe

# How many items of those sent to a worker are remembered, the last ones: as many as it can hold with a thousand slots
# and its prefetch.
SENT_MAX = 2_000

OrphanedItems = list[ItemRef]  # What one incarnation of a worker was sent lately, and may have held when it ended.
Orphans = tuple[bytes, OrphanedItems]  # Of which incarnation.


@dataclass(slots=True)
class Member:
    """One worker, as its manager sees it."""

    report: Report | None = None  # None: it has not reported yet, or it is dead
    answered: bool = False  # it answered once, or is known to have died
    on_the_way: int = 0
    kinds_on_the_way: Counter[str] = field(default_factory=Counter)
    incarnation: bytes = b""  # of its last report, see `Host.incarnation`
    sent: deque[Sequence[ItemRef]] = field(default_factory=deque)  # what this incarnation was sent lately
    sent_count: int = 0
    earlier: dict[bytes, OrphanedItems] = field(default_factory=dict)  # and what earlier ones had
    asked: bool = False  # a call of `await_progress` is under way

    @property
    def capacity(self) -> int:
        """How many items it can take."""
        if self.report is None:
            return 0
        return max(0, self.report.in_flight_limit - self.report.held - self.on_the_way)

    def send(self, refs: Sequence[ItemRef]) -> bytes:
        """Note that items are on their way to a worker not known to be dead; return for which incarnation."""
        self.on_the_way += len(refs)
        self.kinds_on_the_way.update(ref.kind for ref in refs)
        self.sent.append(refs)
        self.sent_count += len(refs)
        while self.sent_count - len(self.sent[0]) >= SENT_MAX:
            self.sent_count -= len(self.sent.popleft())
        return self.incarnation

    def arrive(self, refs: Sequence[ItemRef], report: Report | None) -> None:
        """Note the answer to `send`; None: it died."""
        if report is None:
            probe("a worker dies with items on their way to it")
        self.on_the_way -= len(refs)
        self.kinds_on_the_way.subtract(ref.kind for ref in refs)
        self.update(report)

    def update(self, report: Report | None) -> None:
        """Keep the newer of two reports: answers to concurrent calls may come out of order. None: it died.

        Of two reports with equal progress the one with more held items is the newer.
        """
        self.answered = True
        known = self.report
        if report is not None and report.incarnation != self.incarnation:
            self._begin_incarnation(report.incarnation)
        if (
            report is None
            or known is None
            or report.incarnation != known.incarnation
            or (report.progress, report.held) >= (known.progress, known.held)
        ):
            self.report = report
        else:
            probe("an older report of a worker comes after a newer one")

    @property
    def incarnations(self) -> list[bytes]:
        """The incarnations that were sent items and are not known to have ended."""
        return [*self.earlier, self.incarnation] if self.sent else list(self.earlier)

    def take_orphans(self, ended: Mapping[bytes, bool]) -> list[Orphans]:
        """Return what incarnations that have ended were sent; forget what an earlier one was sent that has not ended.

        A worker whose present incarnation has ended is dead, though no call to it has failed yet. It gets no more
        items. `ended`: whether each incarnation that was checked has ended.
        """
        if self.report is not None and ended.get(self.report.incarnation):
            self.report = None
        if ended.get(self.incarnation):
            self._begin_incarnation(b"")
        earlier = self.earlier
        self.earlier = {incarnation: refs for incarnation, refs in earlier.items() if incarnation not in ended}
        return [(incarnation, refs) for incarnation, refs in earlier.items() if ended.get(incarnation)]

    def _begin_incarnation(self, incarnation: bytes) -> None:
        if self.sent:
            self.earlier[self.incarnation] = list(chain.from_iterable(self.sent))
            self.sent.clear()
            self.sent_count = 0
        self.incarnation = incarnation
