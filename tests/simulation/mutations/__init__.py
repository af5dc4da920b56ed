"""Deliberate bugs, planted in the product in memory, one at a time, and the oracles that must find each.

mutation      a bug, and the search for a seed that finds it
items         bugs in the stored parts of an item
leases        bugs in leases and expiries
claims        bugs in claims and worker sessions
pointers      bugs in pointers
consumers     bugs in the actors
policies      bugs in policies of operators
workflows     bugs in workflows: each removes a guard of their protocols
locks         bugs in locks, of workflows and of other processes
spanning      bugs in transactions across shards
moving        bugs in moves of tenants
records       bugs in records
restored_records  bugs in records of tenants that are restored
unique_items  bugs in items that are unique in the application
snapshots     bugs in snapshots of tenants
external      bugs in queues of an external store
in_races      bugs in the queue that a race shows, and few seeds or none
seeds.txt     a seed that finds each bug
"""

from tests.simulation.mutations.claims import CLAIMS
from tests.simulation.mutations.consumers import CONSUMERS
from tests.simulation.mutations.external import EXTERNAL, EXTERNAL_IN_RACES
from tests.simulation.mutations.in_races import QUEUE_IN_RACES
from tests.simulation.mutations.items import ITEMS
from tests.simulation.mutations.leases import LEASES
from tests.simulation.mutations.locks import LOCKS, LOCKS_IN_RACES, LOCKS_OUTSIDE
from tests.simulation.mutations.moving import MOVING, MOVING_IN_RACES
from tests.simulation.mutations.pointers import POINTERS
from tests.simulation.mutations.policies import POLICIES
from tests.simulation.mutations.records import RECORDS, RECORDS_IN_RACES
from tests.simulation.mutations.restored_records import RESTORED_RECORDS, RESTORED_RECORDS_IN_RACES
from tests.simulation.mutations.snapshots import SNAPSHOTS, SNAPSHOTS_IN_RACES
from tests.simulation.mutations.spanning import SPANNING, SPANNING_IN_RACES
from tests.simulation.mutations.unique_items import UNIQUE_ITEMS, UNIQUE_ITEMS_IN_RACES
from tests.simulation.mutations.workflows import IN_RACES as WORKFLOWS_IN_RACES
from tests.simulation.mutations.workflows import WORKFLOWS

MUTATIONS = (
    *ITEMS,
    *LEASES,
    *CLAIMS,
    *POINTERS,
    *CONSUMERS,
    *POLICIES,
    *WORKFLOWS,
    *LOCKS,
    *LOCKS_OUTSIDE,
    *SPANNING,
    *MOVING,
    *RECORDS,
    *RESTORED_RECORDS,
    *UNIQUE_ITEMS,
    *SNAPSHOTS,
    *EXTERNAL,
)
IN_RACES = (
    *QUEUE_IN_RACES,
    *WORKFLOWS_IN_RACES,
    *LOCKS_IN_RACES,
    *SPANNING_IN_RACES,
    *MOVING_IN_RACES,
    *RECORDS_IN_RACES,
    *RESTORED_RECORDS_IN_RACES,
    *UNIQUE_ITEMS_IN_RACES,
    *SNAPSHOTS_IN_RACES,
    *EXTERNAL_IN_RACES,
)
