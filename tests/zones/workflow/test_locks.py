"""The transactions of locks, one by one: what the stories of workflows do not reach."""

from __future__ import annotations

import pytest

from fairlead.zones.errors import RunUnreadable
from fairlead.zones.pipelining import run_one
from fairlead.zones.records import FORMAT
from fairlead.zones.workflow import locks
from fairlead.zones.workflow.locks import AskedTwice, LockRequest, all_requests, of_run_key, pack_lock, shown_lock
from fairlead.zones.workflow.run_end import end_run_op
from fairlead.zones.workflow.signals import SIGNAL_KIND
from tests.zones.workflow.runs import begin_run
from tests.zones.world import ALICE, World

KEY = pack_lock(("account", 7))


def ask(world: World, item_id: bytes, *, shared: bool = False, signal: str = "") -> bool:
    """Let the run of an item of Alice's ask for the lock; say whether it holds it."""
    name = signal or f"lock {item_id.hex()}"
    request = LockRequest(*ALICE, "queue", item_id, item_id, "w", shared, name, world.now_us)
    return world.run(lambda tr: run_one(locks.take_op(tr, world.zone.location, KEY, request)))


def release(world: World, item_id: bytes) -> None:
    world.run(lambda tr: run_one(locks.release_op(tr, world.zone.location, KEY, item_id, now_us=world.now_us)))


def holders(world: World) -> list[bytes]:
    keys = world.zone.location.keys.tenant
    found = world.run(lambda tr: [each.request for each in all_requests(tr, keys, requests_max=1_000)])
    return [each.run for each in found if each is not None and each.held_us is not None]


def test_a_request_that_is_repeated_changes_nothing_and_another_one_of_its_run_is_refused(world: World) -> None:
    first, second = world.enqueue(), world.enqueue()
    assert [ask(world, first), ask(world, first), ask(world, second), ask(world, second)] == [True, True, False, False]
    with pytest.raises(AskedTwice):
        ask(world, first, signal="other")
    release(world, first)
    release(world, first)
    assert holders(world) == [second]


def test_more_readers_than_one_transaction_signals_get_the_lock_one_after_the_other(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "GRANTS_MAX", 2)
    monkeypatch.setattr(locks, "LINE_PAGE", 2)
    writer, *readers = (world.enqueue() for _ in range(6))
    ask(world, writer)
    for reader in readers:
        assert not ask(world, reader, shared=True)
    release(world, writer)
    assert holders(world) == readers[:2]
    assert not ask(world, world.enqueue(), shared=True)  # It comes behind readers that wait.
    release(world, readers[0])
    assert holders(world) == readers[1:4]
    release(world, readers[3])
    assert set(readers[1:3]) | {readers[4]} <= set(holders(world))


def test_a_lock_is_handed_to_an_item_that_cannot_be_read_by_a_delivery_item(world: World) -> None:
    """Another version may be able to read it."""
    first, second = world.enqueue(), world.enqueue()
    ask(world, first)
    ask(world, second)
    world.set(world.zone.location.keys.item(second), bytes([FORMAT + 1]) + b"newer")
    release(world, first)
    assert holders(world) == [second]
    assert world.count()[SIGNAL_KIND] == 1


@pytest.mark.parametrize("value", [b"", b"\x00", b"\xff" * 9])
def test_a_damaged_number_keeps_no_run_from_ending(world: World, value: bytes) -> None:
    held = begin_run(world, world.enqueue())
    ask(world, held.run)
    keys = world.zone.location.keys.tenant
    world.set(of_run_key(keys, held.run, KEY), value)
    with pytest.raises(RunUnreadable):
        ask(world, held.run)
    assert world.run(lambda tr: locks.requests_of_run(tr, keys, held.run)) == []
    world.run(lambda tr: run_one(end_run_op(tr, held.location, held.run, now_us=world.now_us)))
    assert world.get(of_run_key(keys, held.run, KEY)) is None


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        (("account", 7), '("account", 7)'),
        (("ä",), '("ä",)'),
        ((("a", 1), None, b"x", 1.5, True), "((\"a\", 1), None, b'x', 1.5, True)"),
        (('"\x00',), r'("\"\u0000",)'),
    ],
)
def test_keys_are_shown_as_they_are_written(key: tuple[object, ...], shown: str) -> None:
    assert shown_lock(pack_lock(key)) == shown
