"""The item of a workflow lies in a shard: one in PostgreSQL is refused. A plain handler there can begin a workflow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fairlead
from fairlead import App, WrongStore
from fairlead.workflows.context import WorkflowContext
from tests.fairlead.live_consumers import consumer, eventually
from tests.workflows.application import HOME
from tests.workflows.postgresql.shop import Shop, insert


def test_a_workflow_is_not_enqueued_within_a_connection(shop: Shop) -> None:
    @shop.app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        """Never run."""

    with shop.database.connect() as connection, connection.transaction(), pytest.raises(WrongStore):
        shop.app.tenant(HOME).enqueue("w", within=connection)


def test_what_another_program_enqueues_there_is_a_dead_letter_or_begins_a_workflow(shop: Shop, tmp_path: Path) -> None:
    app = App(f"embedded:{tmp_path / 'data'}", external={"pg": shop.database.dsn})

    @app.workflow("w")
    def work(wf: WorkflowContext, name: str) -> None:
        wf.step(insert, name, store="pg")

    @app.handler("begin w")
    def begin(job: fairlead.Job) -> None:
        app.tenant(job.tenant).enqueue("w", job.payload, item_id=f"w {job.id.hex()}", unique_for=60)

    def dead_letters(connection: Any) -> list[Any]:
        return connection.execute("SELECT kind, record FROM fairlead.items WHERE state = 2").fetchall()  # type: ignore[no-any-return]

    with consumer(app), shop.database.connect() as connection:
        connection.execute("""SELECT fairlead.enqueue('shop', 'alice', 'w', '{"name": "a"}')""")
        connection.execute("""SELECT fairlead.enqueue('shop', 'alice', 'begin w', '{"name": "b"}')""")
        eventually(lambda: bool(dead_letters(connection)))
        eventually(lambda: shop.effects() == ["b"])
        ((kind, record),) = dead_letters(connection)
    assert (kind, b"WrongStore" in record) == ("w", True)
    app.close()
