"""What is stored of a run is damaged, or of a newer version: no step is done again, and other workflows go on."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.testing import DrainResult
from fairlead.workflows.context import WorkflowContext
from fairlead.workflows.step_identity import call_name
from fairlead.workflows.workflow_kind import OLDER_CODE_DELAY_US
from fairlead.zones.engines import transact
from fairlead.zones.errors import RunUnreadable
from fairlead.zones.keyspace import TenantKeys
from fairlead.zones.layout import Tenant
from fairlead.zones.records import FORMAT
from fairlead.zones.workflow.children import child_result_key
from fairlead.zones.workflow.run_records import decode_entry, decode_head, encode, entry_key, head_key, participant_key
from tests.workflows.application import ELSEWHERE, HOME, add, count, enqueue, run, two_shards

ITEM = "checkout-7"
BOB = "shop/bob"
DAMAGED = bytes([FORMAT]) + b"\xc1"
NEWER = bytes([FORMAT + 1]) + b"what it means only they know"
BROKEN = [pytest.param(DAMAGED, id="damaged"), pytest.param(b"", id="empty"), pytest.param(b"\xfe" * 40, id="format")]
STEPS = ["reserve", "pack", "charge", "ship"]


class Story:
    """A workflow of two tenants on two shards, which waits for a signal behind its steps; Bob has one, too."""

    def __init__(self) -> None:
        self.app = two_shards()
        self.home, self.elsewhere = (self.app.tenant(each).shard for each in (HOME, ELSEWHERE))
        self.keys, self.keys_elsewhere = (TenantKeys(*each.split("/")) for each in (HOME, ELSEWHERE))
        self.app.workflow("checkout", keep_result=60)(self.checkout)
        for tenant in (HOME, BOB):
            self.app.tenant(tenant).enqueue("checkout", item_id=ITEM)
        run(self.app, replays=False)
        self.run_id = self.app.tenant(HOME).steps(ITEM).run

    @staticmethod
    def checkout(wf: WorkflowContext) -> None:
        who = wf.tenant.user
        wf.step(add, f"reserve {who}", name="reserve")
        wf.step(add, f"pack {who}", on=ELSEWHERE, name="pack")
        wf.wait_for("approved")
        wf.step(add, f"charge {who}", name="charge")
        wf.step(add, f"ship {who}", on=ELSEWHERE, name="ship")

    def key(self, what: str) -> bytes:
        """Return a key that is stored of Alice's run."""
        return {
            "head": head_key(self.keys, self.run_id),
            "entry": entry_key(self.keys, self.run_id, 0, "reserve", 0),
            "participant": participant_key(self.keys, self.run_id, Tenant(*ELSEWHERE.split("/"))),
            "foreign entry": entry_key(self.keys_elsewhere, self.run_id, 0, "pack", 0),
            "fence": self.keys_elsewhere.fence(self.run_id),
        }[what]

    def set(self, what: str, value: bytes | None) -> bytes:
        """Write a key behind the workflow's back, or clear it; return it."""
        key = self.key(what)
        shard = self.elsewhere if what in ("foreign entry", "fence") else self.home
        transact(shard.db, lambda tr: tr.clear(key) if value is None else tr.set(key, value))
        return key

    def go_on(self) -> DrainResult:
        for tenant in (HOME, BOB):
            self.app.tenant(tenant).transact(lambda tr: tr.signal(ITEM, "approved"))
        return run(self.app, replays=False)

    def done(self, user: str) -> dict[str, int]:
        """Return how often each step of a user's workflow was done."""
        where = {"reserve": f"shop/{user}", "pack": ELSEWHERE, "charge": f"shop/{user}", "ship": ELSEWHERE}
        return {name: count(self.app, tenant, f"{name} {user}") for name, tenant in where.items()}


@pytest.fixture
def story() -> Story:
    return Story()


def the_error(result: DrainResult) -> RunUnreadable:
    (error,) = result.errors
    assert isinstance(error, RunUnreadable)
    return error


@pytest.mark.parametrize("what", ["head", "entry", "participant", "foreign entry", "fence"])
@pytest.mark.parametrize("value", BROKEN)
def test_a_run_of_which_something_is_damaged_becomes_a_dead_letter_that_names_the_key(
    story: Story, what: str, value: bytes
) -> None:
    """Before, a damaged head counted as none, so the run went on and left the keys of its participants behind."""
    key = story.set(what, value)
    result = story.go_on()
    error = the_error(result)
    assert (error.fields["key"], error.fields["reason"]) == (key.hex(), RunUnreadable.DAMAGED)
    assert (result.dead_lettered["checkout"], result.completed["checkout"]) == (1, 1)
    assert story.done("alice") == {"reserve": 1, "pack": 1, "charge": int(what == "fence"), "ship": 0}
    assert story.done("bob") == dict.fromkeys(STEPS, 1)


@pytest.mark.parametrize("tenant", [HOME, ELSEWHERE])
@pytest.mark.parametrize("value", BROKEN)
def test_a_step_whose_entry_is_damaged_is_not_done_again(tenant: str, value: bytes) -> None:
    """Before, it was, if it was the last step that had been done."""
    app, fails = two_shards(), [True]

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.step(add, "done", on=tenant)
        if fails:
            raise ConnectionError

    enqueue(app, "w", item_id=ITEM)
    run(app, replays=False)
    fails.clear()
    key = entry_key(TenantKeys(*tenant.split("/")), app.tenant(HOME).steps(ITEM).run, 0, "add", 0)
    transact(app.tenant(tenant).shard.db, lambda tr: tr.set(key, value))
    assert the_error(run(app, within=600, replays=False)).fields["key"] == key.hex()
    assert count(app, tenant, "done") == 1


@pytest.mark.parametrize("what", ["head", "entry", "participant", "foreign entry"])
def test_a_run_of_which_a_newer_version_wrote_something_is_given_back_to_it(story: Story, what: str) -> None:
    key = story.key(what)
    shard = story.elsewhere if what == "foreign entry" else story.home
    before = transact(shard.db, lambda tr: bytes(tr.get(key).value or b""))
    story.set(what, NEWER)
    result = story.go_on()
    assert (result.errors, result.returned["checkout"], result.completed["checkout"]) == ([], 1, 1)
    assert story.done("alice") == {"reserve": 1, "pack": 1, "charge": 0, "ship": 0}
    story.set(what, before)
    assert run(story.app, within=OLDER_CODE_DELAY_US / 1e6, replays=False).completed["checkout"] == 1
    assert story.done("alice") == dict.fromkeys(STEPS, 1)


def test_a_run_without_its_head_becomes_a_dead_letter_that_names_the_key(story: Story) -> None:
    key = story.set("head", None)
    error = the_error(story.go_on())
    assert (error.fields["key"], error.fields["reason"]) == (key.hex(), RunUnreadable.MISSING)
    assert story.done("alice") == {"reserve": 1, "pack": 1, "charge": 0, "ship": 0}
    assert story.done("bob") == dict.fromkeys(STEPS, 1)


@pytest.mark.parametrize("what", ["head", "entry", "participant", "foreign entry"])
def test_a_dead_letter_goes_on_once_the_value_is_restored(story: Story, what: str) -> None:
    key = story.key(what)
    shard = story.elsewhere if what == "foreign entry" else story.home
    before = transact(shard.db, lambda tr: bytes(tr.get(key).value or b""))
    story.set(what, DAMAGED)
    story.go_on()
    story.set(what, before)
    story.app.tenant(HOME).retry_dead_letter(ITEM)
    assert run(story.app, replays=False).completed["checkout"] == 1
    assert story.done("alice") == dict.fromkeys(STEPS, 1)


@pytest.mark.parametrize("what", ["entry", "foreign entry"])
def test_a_result_that_is_damaged_is_no_error_that_the_workflow_can_catch(what: str) -> None:
    caught: list[Exception] = []
    app = two_shards()
    tenant = HOME if what == "entry" else ELSEWHERE

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        try:
            wf.step(add, "done", on=tenant)
        except Exception as error:  # noqa: BLE001 - code may do so
            caught.append(error)
        wf.wait_for("approved")
        wf.step(add, "after")

    enqueue(app, "w", item_id=ITEM)
    run(app, replays=False)
    run_id = app.tenant(HOME).steps(ITEM).run
    key = entry_key(TenantKeys(*tenant.split("/")), run_id, 0, "add", 0)

    def damage(tr: Any) -> None:
        entry = decode_entry(tr.get(key).value)
        assert entry is not None
        entry.result = b"\xc1"
        tr.set(key, encode(entry))

    transact(app.tenant(tenant).shard.db, damage)
    app.tenant(HOME).transact(lambda tr: tr.signal(ITEM, "approved"))
    error = the_error(run(app, replays=False))
    assert (error.fields["step"], error.fields["reason"]) == ("add", RunUnreadable.DAMAGED)
    assert (caught, count(app, HOME, "after")) == ([], 0)


def test_a_state_that_is_damaged_makes_a_dead_letter() -> None:
    app = two_shards()

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        if wf.state is None:
            wf.step(add, "before")
            wf.checkpoint({"row": 1})
        wf.wait_for("approved")

    enqueue(app, "w", item_id=ITEM)
    run(app, replays=False)
    key = head_key(TenantKeys(*HOME.split("/")), app.tenant(HOME).steps(ITEM).run)

    def damage(tr: Any) -> None:
        head = decode_head(tr.get(key).value)
        assert head is not None
        head.checkpoint = b"\xc1"
        tr.set(key, encode(head))

    transact(app.tenant(HOME).shard.db, damage)
    app.tenant(HOME).transact(lambda tr: tr.signal(ITEM, "approved"))
    result = run(app, replays=False)
    assert (the_error(result).fields["key"], result.dead_lettered["w"]) == (key.hex(), 1)
    assert count(app, HOME, "before") == 1


def test_the_damaged_report_of_a_child_is_not_waited_for() -> None:
    """Before, it counted as a child that has not ended."""
    app = two_shards()
    app.handler("job")(lambda job: None)
    errors: list[Exception] = []

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        try:
            wf.call("job", timeout=60, delay=1)
        except Exception as error:  # noqa: BLE001 - code may do so
            errors.append(error)

    enqueue(app, "w", item_id=ITEM)
    run(app, replays=False)
    run_id = app.tenant(HOME).steps(ITEM).run
    key = child_result_key(TenantKeys(*HOME.split("/")), run_id, call_name(0, "call job"), 0)
    transact(app.tenant(HOME).shard.db, lambda tr: tr.set(key, DAMAGED))
    result = run(app, within=100, replays=False)
    assert (the_error(result).fields["key"], result.dead_lettered["w"], errors) == (key.hex(), 1, [])
