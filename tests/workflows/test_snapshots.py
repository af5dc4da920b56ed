"""Snapshots and workflows: steps copy what they change, and a tenant is not restored under a workflow's feet."""

from __future__ import annotations

import pytest

from fairlead import App, RestoreRefused, SpanningTransaction, WorkflowContext
from fairlead.zones.keyspace import TenantKeys
from fairlead.zones.snapshots.restoring import begin_restore
from fairlead.zones.tenant_transaction import TenantTransaction
from tests.workflows.application import ELSEWHERE, HOME, NEIGHBOUR, append, enqueue, run, two_shards, words

PLACES = [HOME, NEIGHBOUR, ELSEWHERE]


def write(tr: TenantTransaction, value: bytes) -> None:
    """Write, and read nothing: a step at home that does so asks for no read version."""
    tr.set(("value",), value)


def value_at(app: App, place: str, snapshot: int) -> bytes | None:
    return app.tenant(place).at(snapshot).get(("value",))


@pytest.mark.parametrize("place", PLACES)
def test_steps_that_only_write_copy_what_they_change(place: str) -> None:
    app = two_shards()
    tenant = app.tenant(place)

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        for number in range(4):
            wf.step(write, b"%d" % number, on=place)

    tenant.transact(lambda tr: write(tr, b"before"))
    taken = tenant.snapshot()
    enqueue(app, "w")
    run(app, replays=False)
    assert value_at(app, place, taken.number) == b"before"
    assert tenant.transact(lambda tr: tr.get(("value",))) == b"3"


@pytest.mark.parametrize("place", PLACES)
def test_a_snapshot_that_is_taken_between_two_steps_keeps_what_the_first_has_written(place: str) -> None:
    app = two_shards()
    tenant, taken = app.tenant(place), []

    def take(key: str) -> None:
        taken.append(tenant.snapshot().number)

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.step(write, b"0", on=place)
        wf.step(write, b"1", on=place)
        wf.effect(take)
        wf.step(write, b"2", on=place)
        wf.step(write, b"3", on=place)

    enqueue(app, "w")
    run(app, replays=False)
    assert value_at(app, place, taken[0]) == b"1"
    assert tenant.transact(lambda tr: tr.get(("value",))) == b"3"


@pytest.mark.parametrize("place", PLACES)
def test_a_step_takes_a_snapshot_once(place: str) -> None:
    app = two_shards()

    def take(tr: TenantTransaction) -> int:
        write(tr, b"before")
        taken = tr.snapshot()
        write(tr, b"after")
        return taken

    @app.workflow("w", keep_result=60)
    def work(wf: WorkflowContext) -> int:
        number: int = wf.step(take, on=place)
        wf.step(write, b"later", on=place)
        return number

    handle = enqueue(app, "w")
    run(app)
    assert [each.number for each in app.tenant(place).snapshots()] == [handle.result(timeout=0)]
    assert value_at(app, place, handle.result(timeout=0)) == b"before"


@pytest.mark.parametrize("place", [HOME, ELSEWHERE])
def test_a_tenant_is_not_restored_while_a_workflow_has_steps_there(place: str) -> None:
    app = two_shards()
    tenant = app.tenant(place)
    taken = tenant.snapshot()

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.step(append, "first", on=place)
        wf.sleep(60)
        wf.step(append, "second", on=place)

    item = enqueue(app, "w")
    run(app)
    with pytest.raises(RestoreRefused, match="a workflow is under way") as refused:
        tenant.restore(taken)
    assert refused.value.fields["run"] == item.item_id.hex(), "fairlead steps knows it"
    run(app, within=120)
    assert words(app, place) == "first second"
    tenant.restore(taken)
    assert words(app, place) == ""


@pytest.mark.parametrize("place", PLACES)
def test_a_workflow_that_begins_while_a_tenant_is_restored_does_its_steps_afterwards(place: str) -> None:
    app = two_shards()
    tenant = app.tenant(place)
    tenant.transact(lambda tr: append(tr, "old"))
    taken = tenant.snapshot()
    tenant.transact(lambda tr: append(tr, "new"))
    seen = []

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        seen.append(wf.read(lambda tr: (tr.get(("words",)) or b"").decode(), name="look", on=place))
        wf.step(append, "step", on=place)

    shard, keys = tenant.shard, TenantKeys(*tenant.tenant)
    shard.transact(lambda attempt: begin_restore(attempt.tr, shard.layout, keys, taken.number, now_us=1))
    enqueue(app, "w")
    run(app)
    assert seen == []
    tenant.restore(taken)
    run(app, within=600)
    assert words(app, place) == "old step"
    assert set(seen) == {"old "}


def test_a_step_across_shards_copies_what_it_changes_on_both() -> None:
    app = two_shards()
    tenants = [app.tenant(place) for place in (HOME, ELSEWHERE)]
    for tenant in tenants:
        tenant.transact(lambda tr: write(tr, b"before"))
    taken = [tenant.snapshot() for tenant in tenants]

    def both(tx: SpanningTransaction) -> None:
        for tenant in tenants:
            tx.on(tenant).set(("value",), b"after")

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.transact(both)

    enqueue(app, "w")
    run(app)
    for tenant, snapshot in zip(tenants, taken, strict=True):
        assert tenant.at(snapshot).get(("value",)) == b"before"
        assert tenant.transact(lambda tr: tr.get(("value",))) == b"after"
