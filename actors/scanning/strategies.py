"""The ways to select by name, as `ConsumerSettings.selection` has it."""

from fairlead.actors.runtime.host import Host, Remote
from fairlead.actors.scanning.at_random import RandomSelection
from fairlead.actors.scanning.in_order import InOrderSelection
from fairlead.actors.scanning.partitioned import PartitionedSelection
from fairlead.actors.scanning.strategy import SelectionStrategy
from fairlead.actors.settings import ConsumerSettings
from fairlead.zones.layout import ShardLayout


def strategy_for(
    layout: ShardLayout, settings: ConsumerSettings, host: Host, coordinator: Remote, *, consumer: str
) -> SelectionStrategy:
    """Return how a scanner of `consumer` selects on a shard."""
    if settings.selection == "in_order":
        return InOrderSelection(layout, settings, host, coordinator, consumer=consumer)
    if settings.selection == "random":
        return RandomSelection(layout, settings, host.random)
    assert settings.selection == "own_parts"
    return PartitionedSelection(layout, settings, host.random)
