"""What it means for a user if the server refuses a call of the schema's functions."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from fairlead.zones.postgresql.errors import PostgresRefused, SchemaMissing

UPGRADE = "upgrade the schema, `fairlead postgres upgrade --dsn ...`; if it is the newer one, upgrade this program"
GRANT = "let the role do this: `fairlead postgres grant`, --producer ROLE to enqueue, --consumer ROLE for all else"


@contextmanager
def refusals_explained() -> Iterator[None]:
    """Raise what the block may not do, or does not find, as an error that says what to do.

    Raises:
      SchemaMissing: the database has no schema for queues.
      PostgresRefused: the schema is of another version, or the role may not do this.
    """
    try:
        yield
    except psycopg.errors.InvalidSchemaName as error:
        raise SchemaMissing(remedy="fairlead postgres init --dsn ...") from error
    except psycopg.errors.UndefinedFunction as error:
        raise PostgresRefused(reason=_first_line(error), remedy=UPGRADE) from error
    except psycopg.errors.InsufficientPrivilege as error:
        raise PostgresRefused(reason=_first_line(error), remedy=GRANT) from error


def _first_line(error: psycopg.Error) -> str:
    return str(error).strip().partition("\n")[0]
