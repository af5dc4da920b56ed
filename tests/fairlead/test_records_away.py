"""Each operation on records, while a shard stops answering at each of its accesses.

The n-th transaction of an operation is refused; or it is, and all later ones on its shard, until the operation has
ended; or it is carried out, and its answer is lost. Whatever n is:
    - the operation succeeds, or raises an error that says that a shard does not answer
    - what was acknowledged is there, and records that nobody has changed are as they were
    - each record is found by each key that it has, and a key that no record has can be taken at once
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from random import Random
from typing import Any

import pytest

from fairlead import App
from fairlead.record_type import Record
from fairlead.records.accesses import Access
from fairlead.records.errors import IndexUnavailable, Interrupted
from fairlead.records.on_shards.performing import Outcome, ShardRecords
from fairlead.testing import ManualClock, drain
from fairlead.zones.engines import StoreError, StoreUnavailable
from fairlead.zones.engines.api.errors import TRANSACTION_TIMED_OUT
from tests.fairlead.records_on_shards import SHARDS, key_on, on_three_shards, value_on
from tests.fairlead.test_records_repair import share

Data = dict[str, Any]
REFUSED, AWAY, LOST = "refused once", "away from then on", "the answer is lost"
ACCESSES_MAX = 60


class Story:
    """Three records, on three shards, whose index records lie on other shards than they do."""

    def __init__(self, *, repair: bool) -> None:
        self.app = App(dict.fromkeys(SHARDS, "memory:"), clock=ManualClock(), random=Random(7))
        self.accounts = self.app.records("account", unique=("email", "phone"), lookup=("city",), repair=repair)
        self.app.shards.calls.start = lambda call: call()  # type: ignore[method-assign]
        self.ann, self.bob, self.new = (key_on(self.app, name) for name in SHARDS)
        self.of_ann = self._value("us", "asia", "a")
        self.of_bob = self._value("asia", "eu", "b")
        self.free = self._value("eu", "us", "f")
        self.accounts.create(self.ann, self.of_ann)
        self.accounts.create(self.bob, self.of_bob)
        self.garbage = self._value("us", "asia", "g")
        self._leave_garbage()

    def _value(self, of_email: str, of_phone: str, prefix: str) -> Data:
        email = value_on(self.app, of_email, prefix=prefix)
        return {"email": email, "phone": value_on(self.app, of_phone, "phone", prefix=prefix), "city": prefix}

    def _leave_garbage(self) -> None:
        """Leave index records of keys that nobody has."""
        self.app.shards.calls.start = lambda _: None  # type: ignore[method-assign]
        self.accounts.update(self.of(self.bob), {**self.garbage})
        self.accounts.update(self.of(self.bob), {**self.of_bob})
        self.app.shards.calls.start = lambda call: call()  # type: ignore[method-assign]

    def of(self, key: str) -> Record[Data]:
        """Return a record that there is."""
        found = self.accounts.get(key)
        assert found is not None
        return found

    def check(self, allowed: dict[str, list[Data | None]]) -> None:
        """See that each record is as it may be, and that keys and records fit."""
        drain(self.app, within=120, raise_errors=False)
        taken: dict[tuple[str, str], str] = {}
        for key, values in allowed.items():
            record = self.accounts.get(key)
            assert (None if record is None else record.value) in values, key
            if record is None:
                continue
            for name in ("email", "phone"):
                taken[name, record.value[name]] = key
                assert self.accounts.find(**{name: record.value[name]}) == record
            assert record in self.accounts.find_all(city=record.value["city"])
        assert self.accounts.marked() == 0
        for number, each in enumerate((self.of_ann, self.of_bob, self.free, self.garbage)):
            for name in ("email", "phone"):
                if (name, each[name]) not in taken:
                    assert self.accounts.create(f"newcomer {name} {number}", {name: each[name]}).version == 1


Operation = Callable[[Story], Any]


def update(story: Story) -> Any:
    return story.accounts.update(story.of(story.ann), story.free)


# What an operation does, and the records that it may change: as they are before, and after.
OPERATIONS: dict[str, tuple[Operation, Callable[[Story], dict[str, Data | None]]]] = {
    "create": (lambda story: story.accounts.create(story.new, story.free), lambda story: {story.new: story.free}),
    "create over garbage": (
        lambda story: story.accounts.create(story.new, story.garbage),
        lambda story: {story.new: story.garbage},
    ),
    "update": (update, lambda story: {story.ann: story.free}),
    "update to garbage": (
        lambda story: story.accounts.update(story.of(story.ann), story.garbage),
        lambda story: {story.ann: story.garbage},
    ),
    "update of no key": (
        lambda story: story.accounts.update(story.of(story.ann), {**story.of_ann, "visits": 1}),
        lambda story: {story.ann: {**story.of_ann, "visits": 1}},
    ),
    "change": (
        lambda story: story.accounts.change(story.ann, lambda _: story.free),
        lambda story: {story.ann: story.free},
    ),
    "delete": (lambda story: story.accounts.delete(story.of(story.ann)), lambda story: {story.ann: None}),
    "delete by a value": (
        lambda story: story.accounts.delete(email=story.of_ann["email"]),
        lambda story: {story.ann: None},
    ),
    "get": (lambda story: story.of(story.ann), lambda _: {}),
    "find": (lambda story: story.accounts.find(email=story.of_ann["email"]), lambda _: {}),
    "find nobody": (lambda story: story.accounts.find(email=story.free["email"]), lambda _: {}),
    "find all": (lambda story: story.accounts.find_all(city="a"), lambda _: {}),
    "scrub": (lambda story: story.accounts.scrub(repair=True), lambda _: {}),
}


class Faults:
    """Lets the n-th transaction on records go wrong."""

    def __init__(self, at: int, mode: str) -> None:
        self._at = at
        self._mode = mode
        self._away = ""
        self.count = 0

    @contextmanager
    def planted(self) -> Iterator[None]:
        real = ShardRecords._on_shard

        def on_shard(records: ShardRecords, name: str, accesses: Sequence[Access]) -> Outcome:
            self.count += 1
            if self.count == self._at or name == self._away:
                self._away = name if self._mode == AWAY else ""
                if self._mode == LOST:
                    real(records, name, accesses)
                    return Outcome([], StoreError(TRANSACTION_TIMED_OUT))
                return Outcome([], StoreUnavailable("the disk is gone", remedy="Mount it."))
            return real(records, name, accesses)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ShardRecords, "_on_shard", on_shard)
            yield


@pytest.mark.parametrize("repair", [False, True], ids=["", "repair"])
@pytest.mark.parametrize("mode", [REFUSED, AWAY, LOST])
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_shard_that_stops_answering_at_any_access_loses_nothing(name: str, mode: str, repair: bool) -> None:
    operation, changes = OPERATIONS[name]
    for at in range(1, ACCESSES_MAX):
        story = Story(repair=repair)
        before: dict[str, Data | None] = {story.ann: story.of_ann, story.bob: story.of_bob, story.new: None}
        after, faults = changes(story), Faults(at, mode)
        allowed = {key: [value] if key not in after else [value, after[key]] for key, value in before.items()}
        with faults.planted():
            try:
                operation(story)
                allowed.update({key: [value] for key, value in after.items()})
            except (IndexUnavailable, StoreError):
                pass
            except Interrupted:
                assert mode == LOST, "it was carried out, and the operation has met itself"
        story.check(allowed)
        story.app.close()
        if faults.count < at:
            assert at > 1
            return
    raise AssertionError("an operation of so many accesses")


@pytest.mark.parametrize("mode", [REFUSED, AWAY, LOST])
@pytest.mark.parametrize("kept_is_first", [True, False])
def test_a_resolve_that_a_shard_stops_at_any_access_is_carried_out_by_the_next_call(
    mode: str, kept_is_first: bool
) -> None:
    for at in range(1, ACCESSES_MAX):
        with on_three_shards() as app:
            accounts = app.records("account", unique=("email", "phone"), lookup=("city",), repair=True)
            one, two, email = share(app, accounts)
            kept, other = (one, two) if kept_is_first else (two, one)
            faults = Faults(at, mode)
            with faults.planted(), suppress(IndexUnavailable, StoreError, Interrupted):
                accounts.resolve(email=email, keep=kept)
            assert accounts.resolve(email=email, keep=kept).value["email"] == email
            found, lost = accounts.find(email=email), accounts.get(other)
            assert found is not None
            assert found.key == kept
            assert lost is not None
            assert lost.value == {}
            assert accounts.shared_values() == []
        if faults.count < at:
            assert at > 1
            return
    raise AssertionError("an operation of so many accesses")
