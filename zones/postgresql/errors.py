"""Errors of queues in PostgreSQL that a user can meet."""

from fairlead.zones.errors import QueueError


class PostgresRefused(QueueError):
    """The database cannot hold queues as it is; nothing was changed.

    Do: what `remedy` says.
    """

    message = "this PostgreSQL database cannot be used for queues"


class SchemaMissing(PostgresRefused):
    """The database has no schema `fairlead`, or this role may not see it.

    Do: `fairlead postgres init --dsn ...`, as a role that may create schemas. If the schema is there, grant the role of
    the program what it needs: `fairlead postgres grant`.
    """

    message = "the database has no schema for queues that this role can use"


class SchemaOutdated(PostgresRefused):
    """The schema is older than this program.

    Do: `fairlead postgres upgrade --dsn ...`. Programs of the older version go on meanwhile.
    """

    message = "the schema of the queues is older than this program"


class SchemaNewer(PostgresRefused):
    """A newer version of Fairlead has upgraded the schema.

    Do: upgrade this program.
    """

    message = "the schema of the queues is newer than this program"
