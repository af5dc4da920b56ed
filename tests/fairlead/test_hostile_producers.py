"""A hostile producer: a worker only ever unpacks data, and calls registered handlers."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import cloudpickle
import msgspec
import pytest

from fairlead import App, Config, Job, PayloadDamaged, PayloadNotData, QueueError, fleet
from fairlead.testing import ManualClock, drain
from fairlead.zones.queue.items import NewItem
from tests.fairlead.test_fleet_with_damaged_records import eventually

FLAG = "it ran"


class Bomb:
    """An object that runs a program when it is unpickled."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return Path(FLAG).write_text, ("boom",)


PICKLED = (pickle.dumps(Bomb()), cloudpickle.dumps(Bomb()), pickle.dumps(Bomb(), protocol=0))
PAYLOADS: list[Any] = [
    *PICKLED,
    {"__reduce__": ["os.system", "touch it"], "py/object": "os.system", "py/reduce": [{"py/function": "os.system"}]},
    f"!!python/object/apply:pathlib.Path.write_text [{FLAG}]",
    "{{ cycler.__init__.__globals__.os.system('touch it') }}",
    "__import__('pathlib').Path('it ran').touch()",
]
PACKED = [
    *PICKLED,
    msgspec.msgpack.encode(msgspec.msgpack.Ext(1, PICKLED[0])),
    b"\xc7" + bytes([len(PICKLED[2])]) + b"\x05" + PICKLED[2],
]
KINDS = [
    "os.system",
    "pathlib:Path",
    "__init__",
    "builtins.eval",
    "fl_shop:app",
    "../work",
    "mail\u200b",
    "MAIL",
    "mail ",
]


@pytest.fixture
def ran(empty_directory: Path) -> Callable[[], bool]:
    return (empty_directory / FLAG).exists


@pytest.fixture
def shop() -> App:
    app = App("memory:", clock=ManualClock(), random=Random(1))
    app.handler("mail", permanent=(PayloadDamaged,))(lambda job: str(job.payload))
    return app


@pytest.mark.parametrize("payload", PAYLOADS, ids=range(len(PAYLOADS)))
def test_a_payload_reaches_the_worker_as_data_only(shop: App, payload: Any, ran: Callable[[], bool]) -> None:
    seen: list[Any] = []
    shop.handler("seen")(lambda job: seen.append(job.payload))
    shop.tenant("shop", "alice").enqueue("seen", payload)
    drain(shop)
    assert seen == [payload]
    assert not ran()


@pytest.mark.parametrize("packed", PACKED, ids=range(len(PACKED)))
def test_arbitrary_bytes_are_unpacked_as_data_or_fail_their_item(
    shop: App, packed: bytes, ran: Callable[[], bool]
) -> None:
    """A producer may write any bytes into its own items, without `new_item`."""
    alice = shop.tenant("shop", "alice")
    alice.transact(lambda tr: tr.enqueue_item(NewItem("mail", packed, trace={"traceparent": FLAG})))
    try:
        drain(shop)
    except PayloadDamaged:
        assert shop.tenant("shop", "alice").dead_letters()
    assert not ran()


def test_an_object_cannot_be_enqueued_at_all(shop: App) -> None:
    with pytest.raises(PayloadNotData):
        shop.tenant("shop", "alice").enqueue("mail", Bomb())


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_names_a_registered_handler_or_nothing(shop: App, kind: str, ran: Callable[[], bool]) -> None:
    """A kind is looked up in a table, and never imported."""
    shop.tenant("shop", "alice").enqueue(kind, FLAG)
    drain(shop)
    assert shop.tenant("shop", "alice").count() == {kind: 1}
    assert not ran()


def test_a_handler_in_the_store_runs_only_where_its_signing_key_is(
    empty_directory: Path, ran: Callable[[], bool]
) -> None:
    """A writer of the store could otherwise run code on the fleet, so the fleet demands a signature with its key."""
    url = f"embedded:{empty_directory / 'data'}"
    key = "a key of the stranger's own"
    stranger = App(config=Config(shards={"main": url}, signing_key=key))
    stranger.submit(_touch, kind="late")
    stranger.tenant("shop", "alice").enqueue("late")
    for config in (
        Config(shards={"main": url}),
        Config(shards={"main": url}, signing_key=key, submissions=False),
        Config(shards={"main": url}, signing_key="a key that the stranger has not"),
    ):
        app = App(config=config)
        beats: list[Job] = []
        app.handler("beat")(beats.append)
        running = fleet.start(app, "shop:app", runtime="threads")
        app.tenant("shop", "bob").enqueue("beat")
        eventually(lambda: beats)  # noqa: B023
        running.stop(drain=0)
        assert (stranger.tenant("shop", "alice").count(), ran()) == ({"late": 1}, False)
        app.close()
    confiding = App(config=Config(shards={"main": url}, signing_key=key))
    running = fleet.start(confiding, "shop:app", runtime="threads")
    eventually(ran)
    running.stop(drain=0)
    for each in (confiding, stranger):
        each.close()


def _touch(job: Job) -> None:
    Path(FLAG).write_text("boom")


def test_what_a_producer_may_not_enqueue_is_refused_before_it_is_stored(shop: App) -> None:
    alice = shop.tenant("shop", "alice")
    for refused in (
        lambda: alice.enqueue("mail\0", None),
        lambda: alice.enqueue("k" * 97, None),
        lambda: alice.enqueue("mail", None, priority=-1),
        lambda: shop.tenant("shop", "a\0lice"),
    ):
        with pytest.raises(QueueError):
            refused()
    assert alice.count() == {}
