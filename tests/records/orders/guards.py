"""The guards of the protocol, each with the code without it: the mutations of the models."""

from __future__ import annotations

import inspect
from types import ModuleType
from typing import NamedTuple, cast

import msgspec

from fairlead.records import protocol
from fairlead.records.accesses import Access, DeleteIndex, DeleteRecord, WriteIndex, WriteRecord
from fairlead.records.on_shards import transaction
from fairlead.records.protocol import Protocol
from fairlead.records.storage_model.performing import Answer, ModelStores
from fairlead.records.stored import pack
from tests.records.orders.enumeration import Scene
from tests.records.orders.scenes import one_shard_scenes, repair_scenes, scenes
from tests.records.orders.shard_stores import ShardStores


class Planted(NamedTuple):
    """A guard that is removed: texts of the protocol, and what is there instead; or stores that ignore a condition.

    `shown_by`: the scene of which some order violates what must hold.
    """

    shown_by: str
    texts: tuple[tuple[str, str], ...] = ()
    stores: type[ModelStores] = ModelStores

    def protocol(self) -> Protocol:
        """Return the protocol without the guard."""
        source = inspect.getsource(protocol)
        for old, new in self.texts:
            assert source.count(old) == 1, f"the protocol no longer holds: {old}"
            source = source.replace(old, new)
        module = ModuleType("mutated")
        exec(compile(source, "mutated", "exec"), module.__dict__)
        return cast(Protocol, module.__dict__["Protocol"](leaves_unindexed=True))


class BlindFinal(ModelStores):
    """The last phase of a write does not compare the version."""

    def answer(self, access: Access) -> Answer:
        """See `ModelStores`."""
        if isinstance(access, WriteRecord) and access.expected is not None and not access.record.is_dummy:
            store, key = self.data_store(access.key), access.key.encode()
            found = store.get(key)
            return found is not None and store.put_if(key, pack(access.record), found.version)
        return super().answer(access)


class BlindIndexDelete(ModelStores):
    """An index record is deleted, whatever it is by now."""

    def answer(self, access: Access) -> Answer:
        """See `ModelStores`."""
        if isinstance(access, DeleteIndex):
            store = self.index_store(access.index_key)
            found = store.get(access.index_key)
            return found is None or store.delete_if(access.index_key, found.version)
        return super().answer(access)


class BlindIndexReplace(ModelStores):
    """An index record is replaced, whatever it is by now."""

    def answer(self, access: Access) -> Answer:
        """See `ModelStores`."""
        if isinstance(access, WriteIndex) and access.expected is not None:
            store = self.index_store(access.index_key)
            found = store.get(access.index_key)
            return store.put_if(access.index_key, pack(access.entry), None if found is None else found.version)
        return super().answer(access)


class BlindDummyDelete(ModelStores):
    """A dummy is deleted, whatever it is by now: the paper says that it may be."""

    def answer(self, access: Access) -> Answer:
        """See `ModelStores`."""
        if isinstance(access, DeleteRecord) and access.expected.is_dummy:
            store, key = self.data_store(access.key), access.key.encode()
            found = store.get(key)
            return found is None or store.delete_if(key, found.version)
        return super().answer(access)


class BlindDelete(ModelStores):
    """A record is deleted, whatever it is by now."""

    def answer(self, access: Access) -> Answer:
        """See `ModelStores`."""
        if isinstance(access, DeleteRecord) and not access.expected.is_dummy:
            store, key = self.data_store(access.key), access.key.encode()
            found = store.get(key)
            return found is not None and store.delete_if(key, found.version)
        return super().answer(access)


class ForgetsMarks(ModelStores):
    """A user's write does not keep what the record says of keys without index records."""

    def answer(self, access: Access) -> Answer:
        """See `ModelStores`."""
        if isinstance(access, WriteRecord) and access.expected is not None:
            is_users = access.record.writes > access.expected.writes
            unmarked = msgspec.structs.replace(access.record, unindexed=(), violations=())
            access = access._replace(record=unmarked) if is_users and access.expected.unindexed else access
        return super().answer(access)


CHANGE = """        if not ended:
            raise Interrupted(key=entry.key)
        return True
"""
DUMMY = "        yield from self._insert_op(key, dummy)\n        return (yield from self.finish_op"
FINAL = "        if not (yield from one(WriteRecord(key, dummy, record))):\n"
REPAIRS = "        outcomes = yield from together([self._repair_key_op(each, mine) for each in wanted])\n"
GUARDS: dict[str, Planted] = {
    "the result of phase 3 of a collection is obeyed": Planted(
        "two creates of one key, a collection, a find", ((CHANGE, "        return True\n"),)
    ),
    "a collection changes the record before it deletes the index record": Planted(
        "two updates to one key, a collection",
        (
            (
                "            ended = yield from one(WriteRecord(entry.key, record, record.bumped()))\n",
                "            ended = True\n",
            ),
        ),
    ),
    "a collection deletes a dummy before it deletes the index record": Planted(
        "figure 3: Bob collects what Alice, who is slow, has inserted",
        (("            ended = yield from one(DeleteRecord(entry.key, record))\n", "            ended = True\n"),),
    ),
    "a dummy stands while index records are inserted": Planted(
        "figure 3: Bob collects what Alice, who is slow, has inserted",
        ((DUMMY, "        return (yield from self.finish_op"), (FINAL, FINAL.replace("dummy", "None"))),
    ),
    "the last phase of a write is conditional": Planted("two updates to one key, a collection", stores=BlindFinal),
    "an index record is deleted as it was read": Planted(
        "the owner gives a key up, another takes it, and back", stores=BlindIndexDelete
    ),
    "an index record is replaced as it was read": Planted(
        "two updates to one key, a collection", stores=BlindIndexReplace
    ),
    "a dummy is deleted as it was read": Planted(
        "figure 3: Bob collects what Alice, who is slow, has inserted", stores=BlindDummyDelete
    ),
    "a record is deleted as it was read": Planted("deleted twice, created anew", stores=BlindDelete),
    "an index record of another life is replaced by whoever has the record": Planted(
        "one record created twice, another takes its key",
        (("                yield from self._require_own_op(mine)\n", "                pass\n"),),
    ),
    "phase 4 spares index records of a later version": Planted(
        "dropped twice, brought back twice", (("    if below is None or entry.version < below:\n", "    if True:\n"),)
    ),
    "phase 4 spares index records of another generation": Planted(
        "deleted and created anew, another takes its key",
        (("entry.key != key or entry.generation != generation:", "entry.key != key:"),),
    ),
    "a cleanup spares a record that is real": Planted(
        "a slow creator, and its own cleanup item", (("not record.is_dummy or not (yield", "not (yield"),)
    ),
    "a collection spares what the record has": Planted(
        "deleted, another created, a find, a collection",
        (("        if record.has(index_key):\n            return False\n", ""),),
    ),
    "a repair leaves a key unindexed that another record has": Planted(
        "two repairs of two records with one key, a find, a collection",
        (
            (
                "        indexed = [each for each, failed in zip(wanted, outcomes, strict=True) if failed is None]\n",
                "        indexed = list(wanted)\n",
            ),
        ),
    ),
    "a repair inserts index records before the marks go": Planted(
        "a repair beside a create by another that takes the key",
        ((REPAIRS, "        outcomes: list[object] = [None for _ in wanted]\n"),),
    ),
    "a repair is conditional": Planted(
        "a repair beside an update that drops the key, and another that takes it", stores=BlindFinal
    ),
    "a create marks a key that it could not index": Planted(
        "a create without index records beside one with them, a repair, a find",
        (("        record = record.with_unindexed(unindexed)\n", ""),),
    ),
    "an update marks a key that it could not index": Planted(
        "an update without index records beside one with them, a repair, a collection",
        (
            (
                "            record = record.with_unindexed((yield from self._claim_all_op(key, read, added)))\n",
                "            yield from self._claim_all_op(key, read, added)\n",
            ),
        ),
    ),
    "a write keeps the marks of keys that it keeps": Planted(
        "a repair beside an update that keeps the key, and another that takes it", stores=ForgetsMarks
    ),
}


def scene_without(guard: str) -> Scene:
    """Return the scene that shows what a guard of the protocol is for, without the guard."""
    planted = GUARDS[guard]
    protocol = planted.protocol()
    made = {**scenes(protocol), **repair_scenes(protocol)}
    return made[planted.shown_by]._replace(stores=planted.stores)


def scene_on_shards_without(guard: str) -> Scene:
    """Return the scene that shows what a guard of our shards' transactions is for, without the guard."""
    planted = ON_SHARDS[guard]
    return on_shards(planted.stores())[planted.shown_by]


class PlantedOnShards(NamedTuple):
    """A guard of our shards' transactions that is removed: texts, and what is there instead; see `Planted`."""

    shown_by: str
    texts: tuple[tuple[str, str], ...]

    def stores(self) -> type[ShardStores]:
        """Return stores without the guard."""
        source = inspect.getsource(transaction)
        for old, new in self.texts:
            assert source.count(old) == 1, f"the transaction no longer holds: {old}"
            source = source.replace(old, new)
        module = ModuleType("mutated")
        exec(compile(source, "mutated", "exec"), module.__dict__)

        class Mutated(ShardStores):
            transaction_class = module.__dict__["RecordTransaction"]

        return Mutated


SET = "        self._set(key, found, record)\n"
SET_AT_ONCE = SET + "        return AtOnce.WRITTEN\n"
SET_OLD_VERSION = """        import msgspec
        version = record.version if read is None else read.version
        self._set(key, found, msgspec.structs.replace(record, version=version))
        return AtOnce.WRITTEN
"""
SET_INDEX = "            self._set_index(index_key, IndexRecord(key, record.generation, record.version - 1))\n"
BUMP = "            self._data_view(entry.key).set(self._locations.data_key(entry.key), pack_value(found.bumped()))\n"
IS_AS = "        if not _is_as(found, expected):\n            return False\n"
IS_AS_READ, IS_THERE = "found is None or not _is_as(found, expected):", "found is None:"
IS_EQUAL = "                if self._read_index(index_key) != expected:\n                    return False\n"
WRITES_INDEX, DELETES_INDEX = "                self._set_index", "                self._index_view"
NOTHING = "            pass\n"
READ_AS = "        if found is None or not _is_as(found, read):\n            return AtOnce.REFUSED\n"
ONLY_THERE = "        if found is None:\n            return AtOnce.REFUSED\n"
OWN = "        if entry is not None and entry.key == key:\n"
ON_SHARDS: dict[str, PlantedOnShards] = {
    "a deletion at once is conditional": PlantedOnShards(
        "a delete at once beside a slow one, and a slow create anew", ((READ_AS, ONLY_THERE),)
    ),
    "what is given up at once leaves the index record of another": PlantedOnShards(
        "a delete at once of a record that lacks its key, which another has",
        ((OWN, "        if entry is not None:\n"),),
    ),
    "a write at once gives the record a new version": PlantedOnShards(
        "a key dropped at once, which a slow update brings back", ((SET_AT_ONCE, SET_OLD_VERSION),)
    ),
    "a write at once writes index records": PlantedOnShards("two at once, a slow one", ((SET_INDEX, NOTHING),)),
    "a write at once ends the writer whose index record it takes": PlantedOnShards(
        "a create at once beside a slow one, a collection, a find",
        (("                if self._end_writers(index_key, entry) is Ended.VALID:\n", "                if False:\n"),),
    ),
    "the end of writers bumps the version": PlantedOnShards("two updates to one key, a collection", ((BUMP, NOTHING),)),
    "the end of writers deletes a dummy": PlantedOnShards(
        "two creates of one key, a collection, a find", (("            self._clear(entry.key, found)\n", NOTHING),)
    ),
    "the end of writers spares a record that has the key": PlantedOnShards(
        "deleted, another created, a find, a collection",
        (("        if found.has(index_key):\n            return Ended.VALID\n", ""),),
    ),
    "a write is conditional": PlantedOnShards("deleted and created anew, another takes its key", ((IS_AS + SET, SET),)),
    "a deletion is conditional": PlantedOnShards("deleted twice, created anew", ((IS_AS_READ, IS_THERE),)),
    "a write of an index record is conditional": PlantedOnShards(
        "deleted and created anew, another takes its key", ((IS_EQUAL + WRITES_INDEX, WRITES_INDEX),)
    ),
    "a deletion of an index record is conditional": PlantedOnShards(
        "a find beside an owner that gives a key up, and another that takes it",
        ((IS_EQUAL + DELETES_INDEX, DELETES_INDEX),),
    ),
}


def on_shards(stores: type[ShardStores] = ShardStores) -> dict[str, Scene]:
    """Return all scenes, as our shards carry them out."""
    slow = Protocol(ends_at_once=True, leaves_unindexed=True)
    at_once = Protocol(ends_at_once=True, writes_at_once=True)
    made = {**scenes(slow), **one_shard_scenes(slow, at_once), **repair_scenes(slow)}
    return {name: each._replace(stores=stores) for name, each in made.items()}
