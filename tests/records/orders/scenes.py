"""What clients do at once: the scenarios of the models by name, and figure 3 of the paper.

In each state of each order:
    uniqueness     no two records have one alternate key
    no missing     each alternate key of a record has its index record
    marks          both of these hold for keys that are not left unindexed; a repair alone leaves violations only
    no loss        a record vanishes only by a delete of its key, which has read what users have written last
    a find         says nobody only if there was a moment since it began in which nobody had the key
    validity       a key that nobody has can be taken at once
"""

from collections.abc import Iterable, Sequence
from typing import Any

from fairlead.records.accesses import Access, IndexAccess, Op, run_op
from fairlead.records.alternate_keys import Field, pack_unique
from fairlead.records.errors import Changed, IndexAway, RecordError
from fairlead.records.protocol import Protocol
from fairlead.records.storage_model.memory import MemoryStore
from fairlead.records.storage_model.performing import ModelStores
from fairlead.records.stored import DataRecord, IndexRecord
from tests.records.orders.enumeration import Client, Scene, Step, Violation, indexed_keys

NEWCOMER = "a record that nobody has"


def key_of(name: str) -> bytes:
    """Return the index key of a name."""
    return pack_unique(Field("f", is_unique=True), name)


def keys_of(names: str) -> tuple[bytes, ...]:
    """Return the index keys of names of one letter each."""
    return tuple(key_of(each) for each in names)


def real(generation: int, version: int, names: str) -> DataRecord:
    """Return a record that a user has written."""
    return DataRecord(bytes([generation]), version, keys_of(names), version, b"")


def marked(generation: int, version: int, names: str, *, unindexed: str, violations: str = "") -> DataRecord:
    """Return a record that was written while the store of index records was away."""
    record = real(generation, version, names)
    return DataRecord(record.generation, version, record.keys, version, b"", keys_of(unindexed), keys_of(violations))


def dummy(generation: int, names: str) -> DataRecord:
    """Return the dummy of a creator that is under way, or has stopped."""
    return DataRecord(bytes([generation]), 0, keys_of(names), 0, b"")


def entry(key: str, generation: int, version: int) -> IndexRecord:
    """Return an index record."""
    return IndexRecord(key, bytes([generation]), version)


class Clients:
    """Makes clients of one protocol; each creation has a generation of its own."""

    def __init__(self, protocol: Protocol, first_generation: int = 100) -> None:
        self._protocol = protocol
        self._made = first_generation

    def create(self, key: str, names: str) -> Client:
        """Return a client that creates a record."""
        self._made += 1
        generation = bytes([self._made])
        return Client(f"create {key} {names}", lambda: self._protocol.create_op(key, keys_of(names), b"", generation))

    def finish(self, key: str, generation: int, names: str) -> Client:
        """Return a client that has inserted a dummy, and goes on."""
        begun, made = dummy(generation, names), real(generation, 1, names)
        return Client(f"finish {key} {names}", lambda: self._protocol.finish_op(key, begun, made))

    def update(self, key: str, names: str) -> Client:
        """Return a client that reads a record, gives it keys, and deletes index records of those that it dropped."""
        return Client(f"update {key} {names}", lambda: self._update_op(key, names))

    def delete(self, key: str) -> Client:
        """Return a client that reads a record, and deletes it and its index records."""
        return Client(f"delete {key}", lambda: self._delete_op(key), deletes=key)

    def collect(self, name: str) -> Client:
        """Return a client that collects an index record if it is garbage."""
        return Client(f"collect {name}", lambda: self._protocol.collect_op(key_of(name)))

    def find(self, name: str) -> Client:
        """Return a client that looks for a record."""
        return Client(f"find {name}", lambda: self._protocol.find_op(key_of(name)), finds=key_of(name))

    def clean(self, key: str, generation: int, names: str) -> Client:
        """Return the item that cleans up after a creator."""
        return Client(f"clean {key}", lambda: self._protocol.clean_op(key, bytes([generation]), keys_of(names)))

    def repair(self, key: str, again: str = "") -> Client:
        """Return the item that repairs a record; `again`: what an operator resolves."""
        return Client(f"repair {key}", lambda: self._protocol.repair_op(key, keys_of(again)))

    def mark(self, key: str, generation: int, adds: str = "") -> Client:
        """Return the item that marks a record that may have been restored to an earlier state.

        `adds`: keys that it did not have then, of indexes that were built since.
        """

        def begin() -> Op[None]:
            return self._protocol.mark_op(key, bytes([generation]), lambda record: (*record.keys, *keys_of(adds)))

        return Client(f"mark {key} {adds}", begin)

    def away(self, client: Client) -> Client:
        """Return a client that the store of index records does not answer."""
        return client._replace(name=f"{client.name}, away", begin=lambda: _without_index_op(client.begin()))

    def _update_op(self, key: str, names: str) -> Op[None]:
        read = yield from self._protocol.get_op(key)
        if read is None:
            raise Changed(key=key, found=None)
        after, dropped = yield from self._protocol.update_op(key, read, keys_of(names), b"")
        yield from self._protocol.drop_op(key, read.generation, dropped, after.version)

    def _delete_op(self, key: str) -> Op[None]:
        read = yield from self._protocol.get_op(key)
        if read is None:
            raise Changed(key=key, found=None)
        dropped = yield from self._protocol.delete_op(key, read)
        yield from self._protocol.drop_op(key, read.generation, dropped, None)


def _without_index_op(operation: Op[Any]) -> Op[Any]:
    try:
        accesses = next(operation)
        while True:
            asked = [each for each in accesses if not isinstance(each, IndexAccess)]
            heard = (yield asked) if asked else []
            accesses = operation.send(_with_errors(accesses, heard))
    except StopIteration as stop:
        return stop.value


def _with_errors(accesses: Sequence[Access], heard: list[Any]) -> list[Any]:
    answers = iter(heard)
    return [IndexAway(field="f") if isinstance(each, IndexAccess) else next(answers) for each in accesses]


def check(step: Step) -> None:
    """See that everything holds after an access.

    Raises:
      Violation: something does not.
    """
    owners: dict[bytes, str] = {}
    for key, record in step.after.items():
        for index_key in indexed_keys(record):
            if index_key in owners:
                raise Violation(f"{owners[index_key]} and {key} both have {index_key!r}")
            owners[index_key] = key
            if index_key not in step.index_records or step.index_records[index_key].key != key:
                raise Violation(f"{key} has {index_key!r}, and its index record is {step.index_records.get(index_key)}")
    _check_loss(step)
    _check_find(step, owners)
    _check_validity(step)
    _check_repairs(step)


def _check_loss(step: Step) -> None:
    for key, record in step.before.items():
        if record.is_dummy or (key in step.after and not step.after[key].is_dummy):
            continue
        if step.client.deletes != key:
            raise Violation(f"{key} has vanished by {step.client.name}")
        [read] = step.run.heard[0]
        if isinstance(read, DataRecord) and (read.generation, read.writes) != (record.generation, record.writes):
            raise Violation(f"{step.client.name} has read {read}, and has deleted {record}")


def _check_find(step: Step, owners: dict[bytes, str]) -> None:
    wanted, progress = step.client.finds, step.progress
    if wanted is None or progress is None or not progress.has_ended or progress.result is not None:
        return
    if not step.run.was_free and wanted in owners:
        raise Violation(f"find says that nobody has {wanted!r}, and {owners[wanted]} always had it")


def _check_repairs(step: Step) -> None:
    """See that a repair that runs alone ends, and leaves nothing unindexed but violations."""
    for key, record in step.after.items():
        if not set(record.violations) <= set(record.unindexed) <= set(record.keys):
            raise Violation(f"{key} has marks of keys that it does not have: {record}")
        if not record.unrepaired:
            continue
        data, index = MemoryStore(), MemoryStore()
        data.rows, index.rows = dict(step.state.data), dict(step.state.entries)
        try:
            violations = run_op(Protocol().repair_op(key), ModelStores([data], [index]).perform)
        except RecordError as error:
            raise Violation(f"{key} cannot be repaired: {error}") from None
        found = run_op(Protocol().get_op(key), ModelStores([data], [index]).perform)
        if found is None or found.unindexed != violations:
            raise Violation(f"{key} was repaired, and is {found}")


def _check_validity(step: Step) -> None:
    """See that a newcomer takes each key that nobody has, whatever has been left behind."""
    owned = {each for record in step.after.values() if not record.is_dummy for each in record.keys}
    for index_key in step.index_records:
        if index_key in owned:
            continue
        data, index = MemoryStore(), MemoryStore()
        data.rows, index.rows = dict(step.state.data), dict(step.state.entries)
        try:
            create = Protocol().create_op(NEWCOMER, [index_key], b"", b"new")
            run_op(create, ModelStores([data], [index]).perform)
        except RecordError as error:
            raise Violation(f"nobody has {index_key!r}, and a newcomer cannot take it: {error}") from None


def scene(
    clients: Iterable[Client], data: dict[str, DataRecord] | None = None, index: dict[str, IndexRecord] | None = None
) -> Scene:
    """Return a scene; index records are given by keys."""
    return Scene(list(clients), data or {}, {key_of(each): made for each, made in (index or {}).items()}, check)


def scenes(protocol: Protocol) -> dict[str, Scene]:
    """Return the scenes by name."""
    do = Clients(protocol)
    one_has_a = {"1": real(1, 1, "a"), "2": real(2, 1, "")}
    a_of_one = {"a": entry("1", 1, 0)}
    return {
        "figure 3: Bob collects what Alice, who is slow, has inserted": scene(
            [do.create("1", "a"), do.create("2", "a")]
        ),
        "two creates of one key, a collection, a find": scene(
            [do.create("1", "a"), do.create("2", "a"), do.collect("a"), do.find("a")]
        ),
        "three creates of one key": scene([do.create("1", "a"), do.create("2", "a"), do.create("3", "a")]),
        "one record created twice, another takes its key": scene(
            [do.create("1", "a"), do.create("1", "a"), do.create("2", "a")]
        ),
        "two updates to one key, a collection": scene(
            [do.update("1", "a"), do.update("2", "a"), do.collect("a")],
            {"1": real(1, 1, "x"), "2": real(2, 1, "y")},
            {"x": entry("1", 1, 0), "y": entry("2", 2, 0)},
        ),
        "the owner gives a key up, another takes it, and back": scene(
            [do.update("1", ""), do.update("2", "a"), do.update("1", "a")], one_has_a, a_of_one
        ),
        "a find beside an owner that gives a key up, and another that takes it": scene(
            [do.update("1", ""), do.update("2", "a"), do.find("a"), do.collect("a")], one_has_a, a_of_one
        ),
        "deleted and created anew, another takes its key": scene(
            [do.delete("1"), do.create("1", "a"), do.create("2", "a")], {"1": real(1, 1, "a")}, a_of_one
        ),
        "deleted twice, created anew": scene(
            [do.delete("1"), do.delete("1"), do.create("1", "a")], {"1": real(1, 1, "a")}, a_of_one
        ),
        "deleted, another created, a find, a collection": scene(
            [do.delete("1"), do.create("2", "a"), do.find("a"), do.collect("a")], {"1": real(1, 1, "a")}, a_of_one
        ),
        "two keys crosswise": scene([do.create("1", "ab"), do.create("2", "ba"), do.collect("b")]),
        "garbage, two takers, the record that it names changes": scene(
            [do.update("2", "a"), do.update("1", "a"), do.collect("a")],
            {"1": real(1, 2, "x"), "2": real(2, 1, "")},
            {"a": entry("1", 1, 0), "x": entry("1", 1, 0)},
        ),
        "an update, a delete, a create, a collection of one record": scene(
            [do.update("1", "a"), do.delete("1"), do.create("1", "a"), do.collect("a")], {"1": real(1, 1, "")}
        ),
        "dropped twice, brought back twice": scene(
            [do.update("1", ""), do.update("1", "a"), do.update("1", "")], one_has_a, a_of_one
        ),
        "a cleanup item beside a creator that takes the dummy over": scene(
            [do.clean("1", 100, "ab"), do.create("1", "a"), do.find("a")],
            {"1": dummy(100, "ab")},
            {"a": entry("1", 100, 0), "b": entry("1", 100, 0)},
        ),
        "a slow creator, and its own cleanup item": scene(
            [do.finish("1", 100, "ab"), do.clean("1", 100, "ab"), do.find("a"), do.create("2", "a")],
            {"1": dummy(100, "ab")},
        ),
        "a cleanup item runs twice, another takes the key": scene(
            [do.clean("1", 100, "a"), do.clean("1", 100, "a"), do.create("2", "a")],
            {"1": dummy(100, "a")},
            {"a": entry("1", 100, 0)},
        ),
    }


def repair_scenes(protocol: Protocol) -> dict[str, Scene]:
    """Return the scenes of records that were written while the store of index records was away, by name."""
    do = Clients(protocol)
    one_marked = {"1": marked(1, 1, "a", unindexed="a")}
    both_have_a = {"1": real(1, 1, "a"), "2": marked(2, 1, "a", unindexed="a", violations="a")}
    return {
        "two repairs of two records with one key, a find, a collection": scene(
            [do.repair("1"), do.repair("2"), do.find("a"), do.collect("a")],
            {**one_marked, "2": marked(2, 1, "a", unindexed="a")},
        ),
        "a repair beside a create by another that takes the key": scene(
            [do.repair("1"), do.create("2", "a"), do.find("a"), do.collect("a")], one_marked
        ),
        "a repair beside an update that drops the key, and another that takes it": scene(
            [do.repair("1"), do.update("1", ""), do.create("2", "a")], one_marked
        ),
        "a repair beside a delete, and a create anew": scene(
            [do.repair("1"), do.delete("1"), do.create("1", "a"), do.find("a")], one_marked
        ),
        "one record repaired twice, the key dropped and brought back": scene(
            [do.repair("1"), do.repair("1"), do.update("1", ""), do.update("1", "a")], one_marked
        ),
        "a repair beside an update that keeps the key, and another that takes it": scene(
            [do.repair("1"), do.update("1", "ab"), do.create("2", "a")], one_marked
        ),
        "a create without index records beside one with them, a repair, a find": scene(
            [do.away(do.create("1", "a")), do.create("2", "a"), do.repair("1"), do.find("a")]
        ),
        "an update without index records beside one with them, a repair, a collection": scene(
            [do.away(do.update("1", "a")), do.update("2", "a"), do.repair("1"), do.collect("a")],
            {"1": real(1, 1, "x"), "2": real(2, 1, "")},
            {"x": entry("1", 1, 0)},
        ),
        "a record that was restored is marked and repaired, beside updates": scene(
            [do.mark("1", 50), do.repair("1"), do.update("1", "b"), do.update("2", "a")],
            {"1": real(1, 2, "a"), "2": real(2, 1, "")},
            {"a": entry("1", 1, 1), "b": entry("1", 1, 7)},
        ),
        "a record that was restored is marked beside a delete, a find, a create": scene(
            [do.mark("1", 50), do.repair("1"), do.delete("1"), do.find("a"), do.create("2", "a")],
            {"1": real(1, 2, "a")},
            {"a": entry("1", 1, 1)},
        ),
        "a record that was restored gets a key of an index that was built since, which another takes": scene(
            [do.mark("1", 50, adds="b"), do.repair("1"), do.create("2", "b"), do.find("b")],
            {"1": real(1, 2, "a")},
            {"a": entry("1", 1, 1)},
        ),
        "a violation is resolved for the record that was marked": scene(
            [do.update("1", ""), do.repair("2", again="a"), do.find("a"), do.create("3", "a")],
            both_have_a,
            {"a": entry("1", 1, 0)},
        ),
        "a violation is resolved for the record that was indexed": scene(
            [do.update("2", ""), do.repair("2", again="a"), do.find("a"), do.delete("1")],
            both_have_a,
            {"a": entry("1", 1, 0)},
        ),
    }


def one_shard_scenes(slow: Protocol, at_once: Protocol) -> dict[str, Scene]:
    """Return the scenes of writes in one transaction, beside those of the slow path, on our shards."""
    do, tx = Clients(slow), Clients(at_once, first_generation=200)
    return {
        "a create at once beside a slow one, a collection, a find": scene(
            [tx.create("1", "a"), do.create("2", "a"), do.collect("a"), do.find("a")]
        ),
        "an update at once beside a slow one of the same record": scene(
            [tx.update("1", "b"), do.update("1", "a"), do.find("a"), do.collect("a")],
            {"1": real(1, 1, "x"), "2": real(2, 1, "")},
            {"x": entry("1", 1, 0)},
        ),
        "an update at once takes the index record of a slow one": scene(
            [do.update("1", "a"), tx.update("2", "a"), do.find("a")], {"1": real(1, 1, ""), "2": real(2, 1, "")}
        ),
        "a key dropped at once, which a slow update brings back": scene(
            [tx.update("1", ""), do.update("1", "ab"), do.find("a"), do.update("2", "a")],
            {"1": real(1, 1, "a"), "2": real(2, 1, "")},
            {"a": entry("1", 1, 0)},
        ),
        "a create at once takes over a slow creator's dummy": scene(
            [do.finish("1", 100, "a"), tx.create("1", "a"), do.clean("1", 100, "a"), do.find("a")],
            {"1": dummy(100, "a")},
        ),
        "two at once, a slow one": scene([tx.create("1", "ab"), tx.create("2", "b"), do.create("3", "a")]),
        "deleted, created at once, a slow delete of its index records": scene(
            [do.delete("1"), tx.create("1", "a"), do.find("a")], {"1": real(1, 1, "a")}, {"a": entry("1", 1, 0)}
        ),
        "a delete at once beside a slow update that brings a key, another that takes it, a find": scene(
            [tx.delete("1"), do.update("1", "ab"), do.create("2", "a"), do.find("a")],
            {"1": real(1, 1, "a")},
            {"a": entry("1", 1, 0)},
        ),
        "a delete at once beside a slow one, and a slow create anew": scene(
            [tx.delete("1"), do.delete("1"), do.create("1", "a"), do.find("a")],
            {"1": real(1, 1, "a")},
            {"a": entry("1", 1, 0)},
        ),
        "a delete at once of a record that lacks its key, which another has": scene(
            [tx.delete("2"), do.update("1", ""), do.repair("2", again="a"), do.find("a")],
            {"1": real(1, 1, "a"), "2": marked(2, 1, "a", unindexed="a", violations="a")},
            {"a": entry("1", 1, 0)},
        ),
    }
