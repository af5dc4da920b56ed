"""Operations as generators that yield statements and get rows: one form for plain and asynchronous connections.

    def count_op(table):
        ((number,),) = yield Statement("SELECT count(*) FROM items")
        return number

A connection may be a user's, with cursors that bind in the client, or with rows of another form. So each statement has
a cursor of its own, whose rows are binary, and tuples.
"""

from collections.abc import Generator
from typing import Any, NamedTuple, TypeVar

import psycopg
from psycopg.rows import tuple_row

T = TypeVar("T")

Row = tuple[Any, ...]


class Statement(NamedTuple):
    """A statement, and its arguments."""

    text: str
    arguments: tuple[Any, ...] = ()


StatementOp = Generator[Statement, list[Row], T]


def run_op(connection: psycopg.Connection[Any], operation: StatementOp[T]) -> T:
    """Run an operation; return its result, raise what the server refuses."""
    rows: list[Row] | None = None
    while True:
        try:
            statement = next(operation) if rows is None else operation.send(rows)
        except StopIteration as ended:
            result: T = ended.value
            return result
        cursor = psycopg.Cursor(connection, row_factory=tuple_row)
        rows = cursor.execute(statement.text, statement.arguments, binary=True).fetchall()


async def arun_op(connection: psycopg.AsyncConnection[Any], operation: StatementOp[T]) -> T:
    """Run an operation as `run_op` does, and let the event loop go on meanwhile."""
    rows: list[Row] | None = None
    while True:
        try:
            statement = next(operation) if rows is None else operation.send(rows)
        except StopIteration as ended:
            result: T = ended.value
            return result
        cursor = psycopg.AsyncCursor(connection, row_factory=tuple_row)
        await cursor.execute(statement.text, statement.arguments, binary=True)
        rows = await cursor.fetchall()
