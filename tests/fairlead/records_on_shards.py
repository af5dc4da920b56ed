"""Records of an application on three shards: where they lie, and what happens while shards do not answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from random import Random
from typing import Any

import pytest

from fairlead import App
from fairlead.record_type import Record
from fairlead.records.alternate_keys import Field, pack_unique
from fairlead.records.on_shards.slots import Locations
from fairlead.testing import ManualClock
from fairlead.zones.engines import StoreUnavailable
from fairlead.zones.layout import Tenant

SHARDS = ("eu", "us", "asia")


@contextmanager
def on_three_shards() -> Iterator[App]:
    """Yield an application with a manual clock, on three shards in memory."""
    with closing(App(dict.fromkeys(SHARDS, "memory:"), clock=ManualClock(), random=Random(7))) as made:
        yield made


def found(record: Record[Any] | None) -> Record[Any]:
    """Return a record that must be there."""
    assert record is not None
    return record


@contextmanager
def away(app: App, *names: str) -> Iterator[None]:
    """Let shards not answer."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise StoreUnavailable("the disk is gone", remedy="Mount it.")

    with pytest.MonkeyPatch.context() as patch:
        for name in names:
            patch.setattr(app.shards[name].db, "create_transaction", refuse)
        yield


def index_tenant(field: str, value: Any, type_name: str = "account") -> Tenant:
    """Return the slot of the index record of a value."""
    return Locations(type_name).index_tenant(pack_unique(Field(field, is_unique=True), value))


def index_home(app: App, field: str, value: Any) -> str:
    """Return the shard of the index record of a value."""
    return app.shards.home_name(index_tenant(field, value))


def data_home(app: App, key: str) -> str:
    """Return the shard of a record."""
    return app.shards.home_name(Locations("account").data_tenant(key))


def key_on(app: App, name: str, *, prefix: str = "u", besides: tuple[str, ...] = ()) -> str:
    """Return a primary key whose record lies on a shard."""
    keys = (f"{prefix}{number}" for number in range(999))
    return next(key for key in keys if key not in besides and data_home(app, key) == name)


def value_on(app: App, name: str, field: str = "email", *, prefix: str = "") -> str:
    """Return a value whose index record lies on a shard."""
    values = (f"{prefix}{number}@x.com" for number in range(999))
    return next(value for value in values if index_home(app, field, value) == name)
