"""The queues of one tenant, wherever they lie; and what its transactional handlers have written there."""

from __future__ import annotations

from typing import Any

from fairlead import TenantDatabase
from fairlead.external_queues import ExternalQueues
from tests.zones.postgresql.database import Database

Queues = TenantDatabase | ExternalQueues


class EffectsInShard:
    """Words that handlers have added to the tenant's keys."""

    def __init__(self, tenant: TenantDatabase) -> None:
        self._tenant = tenant

    def add(self, transaction: Any, word: str) -> None:
        """Count a word, in the transaction of a handler."""
        transaction.add(("word", word), 1)

    def found(self, word: str) -> int:
        """Return how often a word was committed."""
        value = self._tenant.transact(lambda tr: tr.get(("word", word)))
        return 0 if value is None else int.from_bytes(value, "little")


class EffectsInSQL:
    """Words that handlers have inserted into a table."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, transaction: Any, word: str) -> None:
        """See `EffectsInShard`."""
        transaction.execute("INSERT INTO words VALUES (%s)", [word])

    def found(self, word: str) -> int:
        """See `EffectsInShard`."""
        with self._database.connect() as connection:
            (count,) = connection.execute("SELECT count(*) FROM words WHERE word = %s", [word]).fetchone()
            return int(count)

    def clear(self) -> None:
        """Forget all words."""
        with self._database.connect() as connection:
            connection.execute("DELETE FROM words")


Effects = EffectsInShard | EffectsInSQL
