"""YCSB's core workloads a to d, as clients send them in Olive's evaluation (sections 7.2 and 7.3).

    a   half reads, half updates        c   only reads
    b   95 % reads, 5 % updates         d   95 % reads, 5 % creates

There are 1,000 objects of ten attributes with 100 bytes each. A client asks for them by a Zipfian distribution with
YCSB's constant. The newest object is the most popular one, as in YCSB's workload d. Workloads a to c create nothing, so
that there it does not matter which object is popular.
"""

from functools import partial
from itertools import accumulate
from random import Random

from fairlead import TenantTransaction
from fairlead.tenant_database import TenantDatabase

OBJECTS = 1_000
ATTRIBUTES = [bytes([number]) * 100 for number in range(10)]
VALUE = b"".join(ATTRIBUTES)
OPERATIONS = ("read", "update", "create")
MIXES = {"a": (0.5, 0.5, 0.0), "b": (0.95, 0.05, 0.0), "c": (1.0, 0.0, 0.0), "d": (0.95, 0.0, 0.05)}
ZIPFIAN_CONSTANT = 0.99
POPULARITY = list(accumulate(1 / rank**ZIPFIAN_CONSTANT for rank in range(1, OBJECTS + 1)))
FILL_BATCH = 500
FULL_REQUESTS, QUICK_REQUESTS = 1_000, 60


class Requests:
    """The requests of one client of a workload, one after the other."""

    def __init__(self, workload: str, random: Random) -> None:
        self._mix = MIXES[workload]
        self._random = random
        self._objects = OBJECTS

    def draw(self) -> tuple[str, int]:
        """Return the next operation, and the number of its object."""
        (what,) = self._random.choices(OPERATIONS, self._mix)
        if what == "create":
            self._objects += 1
            return what, self._objects - 1
        (rank,) = self._random.choices(range(OBJECTS), cum_weights=POPULARITY)
        return what, self._objects - 1 - rank


class Client:
    """Reads, updates and creates objects of a tenant, each in a transaction of its own."""

    def __init__(self, tenant: TenantDatabase) -> None:
        self.tenant = tenant

    def read(self, number: int) -> None:
        self.tenant.transact(lambda tr: tr.get((number,)))

    def update(self, number: int) -> None:
        self.tenant.transact(lambda tr: tr.set((number,), VALUE))

    def create(self, number: int) -> None:
        def body(tr: TenantTransaction) -> None:
            if tr.get((number,)) is None:
                tr.set((number,), VALUE)

        self.tenant.transact(body)


def fill(tenant: TenantDatabase, objects: int, value: bytes = VALUE) -> None:
    """Create objects."""

    def body(tr: TenantTransaction, begin: int) -> None:
        for number in range(begin, min(begin + FILL_BATCH, objects)):
            tr.set((number,), value)

    for begin in range(0, objects, FILL_BATCH):
        tenant.transact(partial(body, begin=begin))
