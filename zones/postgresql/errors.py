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


class NoTransaction(QueueError):
    """The connection that was given as `within` has no transaction of which the enqueue could be a part.

    Do: what `reason` says. To enqueue without a transaction of your own, leave `within` out.
    """

    message = "there is no transaction to enqueue in"


class ForeignDatabase(QueueError):
    """The connection leads to a database that is no external store of this application; nothing was enqueued.

    Do: name that database in the configuration, `[external]`, or `App(external=...)`; or use a connection to one of
    `known`. A database that was copied has the id of the original: `fairlead postgres check` shows it.
    """

    message = "the connection leads to a database that is no external store of this application"
