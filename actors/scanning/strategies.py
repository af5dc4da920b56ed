"""The ways to select by name, as `ConsumerSettings.selection` has it."""

from fairlead.actors.runtime.host import Host, Remote
from fairlead.actors.scanning.at_random import AtRandom
from fairlead.actors.scanning.in_order import InOrder
from fairlead.actors.scanning.partitioned import OwnParts
from fairlead.actors.scanning.strategy import Selection
from fairlead.actors.settings import ConsumerSettings
from fairlead.zones.layout import Layout


def selection_for(
    layout: Layout, settings: ConsumerSettings, host: Host, coordinator: Remote, *, consumer: str
) -> Selection:
    """Return how a scanner of `consumer` selects on a shard."""
    if settings.selection == "in_order":
        return InOrder(layout, settings, host, coordinator, consumer=consumer)
    if settings.selection == "random":
        return AtRandom(layout, settings, host.random)
    assert settings.selection == "own_parts"
    return OwnParts(layout, settings, host.random)
