"""The upkeep of queues in PostgreSQL: see `UpkeepStore`."""

from fairlead.zones.external.depth import Depth
from fairlead.zones.external.inspection import COUNTED_MAX
from fairlead.zones.postgresql.connections import Connections

DEPTH = "SELECT kind, items FROM fairlead.depth(%b)"
_WAITS = "SELECT waits_us FROM fairlead.totals(NULL, %b)"
_EXPIRE = "SELECT fairlead.expire(%b::int)"
_DEAD_ROWS = "SELECT pg_stat_get_dead_tuples('fairlead.items'::regclass)"
_VACUUM = "VACUUM (TRUNCATE off, INDEX_CLEANUP on) fairlead.items"


class Upkeep:
    """The upkeep of one database. `slow`: connections whose statements may take minutes."""

    def __init__(self, connections: Connections, slow: Connections) -> None:
        self._connections = connections
        self._slow = slow

    def depth(self) -> Depth:
        """See `UpkeepStore`."""
        with self._connections.call() as call:
            kinds = dict(call.execute(DEPTH, COUNTED_MAX).fetchall())
            (waits_us,) = call.execute(_WAITS, COUNTED_MAX).fetchone()
        return Depth(kinds, waits_us, sum(kinds.values()) < COUNTED_MAX)

    def expire(self, items_max: int) -> int:
        """See `UpkeepStore`."""
        with self._connections.call(is_committing=True) as call:
            (expired,) = call.execute(_EXPIRE, items_max).fetchone()
        return int(expired)

    def dead_rows(self) -> int:
        """See `UpkeepStore`: as the server's statistics say."""
        with self._connections.call() as call:
            (rows,) = call.execute(_DEAD_ROWS).fetchone()
        return int(rows)

    def vacuum(self) -> None:
        """See `UpkeepStore`. The server skips it, with a warning, if the role is not the owner of the table."""
        with self._slow.call() as call:
            call.execute(_VACUUM)
