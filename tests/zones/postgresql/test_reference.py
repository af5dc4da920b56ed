"""The reference of the SQL functions names their arguments, types and defaults as the database has them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.postgresql_server import TestedPostgres
from tests.style.sources import ROOT
from tests.zones.postgresql.database import Database

PAGE = (ROOT / "docs/reference/sql.md").read_text(encoding="utf-8")
ARGUMENT = re.compile(r"^\| `(\w+)` \| `([\w ]+)` \| (?:`([^`]+)`)? ?\|", re.MULTILINE)


def documented(function: str) -> list[tuple[str, str, str]]:
    """Return names, types and defaults of a function's arguments."""
    (section,) = re.findall(rf"^## `fairlead.{function}`$(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return [(name, form, default) for name, form, default in ARGUMENT.findall(section)]


@pytest.fixture(scope="module")
def arguments(postgresql: TestedPostgres) -> Any:
    """What the database says of a function's arguments."""
    database = Database(postgresql, "reference")
    database.prepare()
    with database.connect() as connection:
        yield lambda function: connection.execute(
            "SELECT pg_get_function_arguments(p.oid) FROM pg_proc p "
            "WHERE p.pronamespace = 'fairlead'::regnamespace AND p.proname = %s",
            [function],
        ).fetchone()[0]
    database.close()


@pytest.mark.parametrize("function", ["enqueue", "cancel"])
def test_the_arguments_of_a_function_are_those_of_the_reference(function: str, arguments: Any) -> None:
    written = [
        f"{name} {form}" + (f" DEFAULT {default}" if default else "") for name, form, default in documented(function)
    ]
    found = [
        re.sub(r"::\w+", "", each).strip()
        for each in arguments(function).split(",")
        if not each.strip().startswith("OUT ")
    ]
    assert found == written
