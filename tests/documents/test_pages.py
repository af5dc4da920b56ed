"""Every page of the documentation is run: each of its code blocks does what the page says."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.documents.blocks import blocks_of, name_of, pages
from tests.documents.stories import Story
from tests.postgresql_server import TestedPostgres
from tests.style.sources import ROOT

# Pages whose blocks a test of their own runs, and how many blocks that is.
RUN_ELSEWHERE = {
    "README.md": (6, "tests/fairlead/test_readme.py"),
    "docs/simulate.md": (7, "tests/fairlead/test_simulate_doc.py"),
    "docs/telemetry.md": (8, "tests/fairlead/telemetry/test_telemetry_doc.py"),
}

WITH_POSTGRESQL = [
    "docs/how-to/celery-postgresql.md",
    "docs/how-to/postgresql.md",
    "docs/how-to/postgresql-frameworks.md",
    "docs/how-to/postgresql-operations.md",
    "docs/how-to/procrastinate.md",
    "docs/tutorial-postgresql.md",
]

FENCE = "```"

# What cannot be run by a test: the page, and why. Each stands above its block in the page's source.
NOT_RUN = [
    ("README.md", "it installs from the network"),
    ("docs/how-to/cluster.md", "it rents machines, and needs a FoundationDB cluster"),
    ("docs/simulate.md", "one of them takes a night; that each can be typed is checked"),
    ("docs/tutorial.md", "it installs from the network; `make demo` does the same"),
    ("docs/tutorial.md", "it rents machines, and needs a FoundationDB cluster"),
]

RUN_HERE = [
    page for page in pages() if name_of(page) not in RUN_ELSEWHERE and FENCE in page.read_text(encoding="utf-8")
]


def reach_postgresql(server: TestedPostgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `postgresql://localhost/shop` lead to an empty database of a server."""
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS shop")
        for role in ("web", "fleet"):  # Those that pages make.
            connection.execute(f"DROP ROLE IF EXISTS {role}")
        connection.execute("CREATE DATABASE shop")
    reached = conninfo_to_dict(server.url)
    monkeypatch.setenv("PGPORT", str(reached["port"]))
    monkeypatch.setenv("PGUSER", str(reached["user"]))


@pytest.fixture
def story(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Story]:
    """A story that begins in an empty folder, whose name is short: paths are printed."""
    if name_of(request.param) in WITH_POSTGRESQL:
        reach_postgresql(request.getfixturevalue("postgresql"), monkeypatch)
    folder = tmp_path_factory.mktemp("page") / "shop"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    story = Story(name_of(request.param), folder)
    yield story
    story.close()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("story", RUN_HERE, indirect=True, ids=name_of)
def test_every_block_of_a_page_does_what_it_says(story: Story) -> None:
    page = ROOT / story.name
    ran = 0
    for block in blocks_of(page):
        if block.not_run is None and block.run_by is None:
            story.run(block)
        ran += 1
    assert ran == page.read_text(encoding="utf-8").count(FENCE) // 2, "a block was not found"


def test_what_is_not_run_is_known_and_short() -> None:
    found = [
        (name_of(page), block.not_run) for page in pages() for block in blocks_of(page) if block.not_run is not None
    ]
    assert found == NOT_RUN
    assert len(found) <= 5


def test_a_test_that_runs_a_block_reads_its_page() -> None:
    run = [(name_of(page), block.run_by) for page in pages() for block in blocks_of(page) if block.run_by]
    assert run == [("docs/reliability.md", "tests/contract/test_embedded_write_lock.py")]
    for name, test in run:
        assert name.removeprefix("docs/") in (ROOT / test).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", RUN_ELSEWHERE)
def test_the_pages_with_tests_of_their_own_have_the_blocks_that_these_run(name: str) -> None:
    count, module = RUN_ELSEWHERE[name]
    assert (ROOT / module).is_file()
    assert len(blocks_of(ROOT / name)) == count
