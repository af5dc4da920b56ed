"""The ways to select by name, as `ConsumerSettings.selection` has it."""

from actors.host import Host, Remote
from actors.selection.at_random import AtRandom
from actors.selection.in_order import InOrder
from actors.selection.own_parts import OwnParts
from actors.selection.selection import Selection
from actors.settings import ConsumerSettings
from zones.layout import Layout


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
