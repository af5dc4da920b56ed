"""The guards of the protocol, each with the code without it: the mutations of the models."""

from __future__ import annotations

import inspect
from types import ModuleType
from typing import NamedTuple, cast

from fairlead.records import protocol
from fairlead.records.accesses import Access, DeleteIndex, DeleteRecord, WriteIndex, WriteRecord
from fairlead.records.protocol import Protocol
from fairlead.records.storage_model.performing import ModelStores
from fairlead.records.stored import DataRecord, IndexRecord, pack
from tests.records.orders.enumeration import Scene
from tests.records.orders.scenes import scenes


class Planted(NamedTuple):
    """A guard that is removed: texts of the protocol, and what is there instead; or stores that ignore a condition."""

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
        return cast(Protocol, module.__dict__["Protocol"]())


class BlindFinal(ModelStores):
    """The last phase of a write does not compare the version."""

    def answer(self, access: Access) -> DataRecord | IndexRecord | list[str] | bool | None:
        """See `ModelStores`."""
        if isinstance(access, WriteRecord) and access.expected is not None and not access.record.is_dummy:
            store, key = self.data_store(access.key), access.key.encode()
            found = store.get(key)
            return found is not None and store.put_if(key, pack(access.record), found.version)
        return super().answer(access)


class BlindIndexDelete(ModelStores):
    """An index record is deleted, whatever it is by now."""

    def answer(self, access: Access) -> DataRecord | IndexRecord | list[str] | bool | None:
        """See `ModelStores`."""
        if isinstance(access, DeleteIndex):
            store = self.index_store(access.index_key)
            found = store.get(access.index_key)
            return found is None or store.delete_if(access.index_key, found.version)
        return super().answer(access)


class BlindIndexReplace(ModelStores):
    """An index record is replaced, whatever it is by now."""

    def answer(self, access: Access) -> DataRecord | IndexRecord | list[str] | bool | None:
        """See `ModelStores`."""
        if isinstance(access, WriteIndex) and access.expected is not None:
            store = self.index_store(access.index_key)
            found = store.get(access.index_key)
            return store.put_if(access.index_key, pack(access.entry), None if found is None else found.version)
        return super().answer(access)


class BlindDummyDelete(ModelStores):
    """A dummy is deleted, whatever it is by now: the paper says that it may be."""

    def answer(self, access: Access) -> DataRecord | IndexRecord | list[str] | bool | None:
        """See `ModelStores`."""
        if isinstance(access, DeleteRecord) and access.expected.is_dummy:
            store, key = self.data_store(access.key), access.key.encode()
            found = store.get(key)
            return found is None or store.delete_if(key, found.version)
        return super().answer(access)


CHANGE = """        if not ended:
            raise Interrupted(key=entry.key)
        return True
"""
DUMMY = "        yield from self._insert_op(key, dummy)\n        yield from self.finish_op"
FINAL = "        if not (yield from one(WriteRecord(key, dummy, record))):\n"
GUARDS: dict[str, Planted] = {
    "the result of phase 3 of a collection is obeyed": Planted(((CHANGE, "        return True\n"),)),
    "a collection changes the record before it deletes the index record": Planted(
        (
            (
                "            ended = yield from one(WriteRecord(entry.key, record, record.bumped()))\n",
                "            ended = True\n",
            ),
        )
    ),
    "a collection deletes a dummy before it deletes the index record": Planted(
        (("            ended = yield from one(DeleteRecord(entry.key, record))\n", "            ended = True\n"),)
    ),
    "a dummy stands while index records are inserted": Planted(
        ((DUMMY, "        yield from self.finish_op"), (FINAL, FINAL.replace("dummy", "None")))
    ),
    "the last phase of a write is conditional": Planted(stores=BlindFinal),
    "an index record is deleted as it was read": Planted(stores=BlindIndexDelete),
    "an index record is replaced as it was read": Planted(stores=BlindIndexReplace),
    "a dummy is deleted as it was read": Planted(stores=BlindDummyDelete),
    "an index record of another life is replaced by whoever has the record": Planted(
        (("                yield from self._require_own_op(mine)\n", "                pass\n"),)
    ),
    "phase 4 spares index records of a later version": Planted(
        (("    if below is None or entry.version < below:\n", "    if True:\n"),)
    ),
    "phase 4 spares index records of another generation": Planted(
        (("entry.key != key or entry.generation != generation:", "entry.key != key:"),)
    ),
    "a cleanup spares a record that is real": Planted((("(not record.is_dummy or not (yield", "(not (yield"),)),
    "a collection spares what the record has": Planted(
        (("        if record.has(index_key):\n            return False\n", ""),)
    ),
}


def scenes_without(guard: str) -> dict[str, Scene]:
    """Return the scenes of the protocol without a guard."""
    planted = GUARDS[guard]
    return {name: each._replace(stores=planted.stores) for name, each in scenes(planted.protocol()).items()}
