"""Selection in order: the oldest vested pointers first, by the one consumer that holds the coordinator's lease.

All others select at random, and so does this one without the lease (QuiCK section 6, "Concurrency between consumers").
It requests the lease three times per `in_order_lease`, and reports whether it has passed on pointers in order since.
"""

from collections.abc import Sequence

from fairlead.actors.runtime.host import Host, Remote
from fairlead.actors.scanning.at_random import RandomSelection
from fairlead.actors.scanning.reading import Eligible, oldest
from fairlead.actors.settings import ConsumerSettings
from fairlead.zones.engines import Reader
from fairlead.zones.keyspace import PartKeys
from fairlead.zones.layout import ShardLayout
from fairlead.zones.probes import probe
from fairlead.zones.top_level.pointers import PointerRef


class InOrderSelection(RandomSelection):
    """See the module. `consumer`: its name in requests to the `coordinator`."""

    def __init__(
        self, layout: ShardLayout, settings: ConsumerSettings, host: Host, coordinator: Remote, *, consumer: str
    ) -> None:
        super().__init__(layout, settings, host.random)
        self._clock = host.clock
        self._coordinator = coordinator
        self._consumer = consumer
        self._lease_us = settings.in_order_lease_ms * 1000
        self._until_us = 0  # until when it holds the lease
        self._asked_us = 0
        self._in_order = False  # whether the present scan goes in order
        self._handed_over = False  # whether pointers were passed on in order since the last request

    def begin(self, now_us: int) -> None:
        """See `SelectionStrategy`."""
        if not 0 <= now_us - self._asked_us < self._lease_us // 3:
            self._asked_us = now_us
            handed_over, self._handed_over = self._handed_over, False
            self._request(handed_over=handed_over, wanted=True, until_us=now_us + self._lease_us)
        self._in_order = now_us < self._until_us

    def select(self, tr: Reader, eligible: Eligible, *, now_us: int, parts: Sequence[PartKeys]) -> list[PointerRef]:
        """See `SelectionStrategy`."""
        if self._in_order:
            return oldest(tr, parts, eligible, settings=self._settings, now_us=now_us)
        return super().select(tr, eligible, now_us=now_us, parts=parts)

    def selected(self) -> None:
        """See `SelectionStrategy`."""
        self._handed_over = self._handed_over or self._in_order

    def give_way(self) -> None:
        """Let another consumer go in order: the managers of this one are full."""
        if self._until_us > self._clock.now_us():
            probe("a full scanner returns its in-order lease")
            self._until_us = 0
            self._request(handed_over=False, wanted=False, until_us=0)

    def _request(self, *, handed_over: bool, wanted: bool, until_us: int) -> None:
        def granted(granted: bool | None, error: Exception | None) -> None:
            if error is None and granted:
                self._until_us = until_us

        shard_id = self.layout.shard_id.hex()
        self._coordinator.call("request", shard_id, self._consumer, handed_over, wanted, self._lease_us, done=granted)
