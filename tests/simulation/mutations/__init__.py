"""Deliberate bugs, planted in the product in memory, one at a time, and which oracles must find each.

mutation      how a bug is planted, and looked for
items         in what is stored of an item
leases        in leases and expiries
pointers      in pointers
consumers     in the actors
policies      in policies of operators
"""

from tests.simulation.mutations.consumers import CONSUMERS
from tests.simulation.mutations.items import ITEMS
from tests.simulation.mutations.leases import LEASES
from tests.simulation.mutations.pointers import POINTERS
from tests.simulation.mutations.policies import POLICIES

MUTATIONS = (*ITEMS, *LEASES, *POINTERS, *CONSUMERS, *POLICIES)
