"""Bugs in records: each removes a guard of Uniqorn's protocol, or of what our shards add to it.

`tests/records/orders` removes the same guards in every order of a few clients; these are found by histories.
Four that 200 histories do not find are removed there alone: an update deletes the index record of a later update; a
cleanup item deletes a record that is real; an index record is replaced, whatever it is by now; and a collection does
not change the version of a record.
"""

from fairlead.records import protocol
from fairlead.records.on_shards.building import Builder
from fairlead.records.on_shards.scatter import Scatter
from fairlead.records.on_shards.scrubbing import Scrub
from fairlead.records.on_shards.transaction import RecordTransaction
from fairlead.records.protocol import Protocol
from fairlead.records.stored import DataRecord
from fairlead.simulation.directory.world import (
    CLEANED,
    COMPLETE,
    INDEXED,
    LINEARIZABLE,
    REPAIRED,
    SCRUBBED,
    run_directory,
)
from tests.simulation.mutations.mutation import Mutation, in_a_race, mutation

_WRONG = (LINEARIZABLE, INDEXED)
_BY_VERSION = (
    DataRecord.is_as,
    "return self == other",
    "return (self.generation, self.version) == (other.generation, other.version)",
)

RECORDS: tuple[Mutation, ...] = (
    mutation(
        "a slow creator of a record replaces the index record of whoever has taken its dummy over",
        (Protocol.claim_op, "yield from self._require_own_op(mine)", "pass"),
        found_by=_WRONG,
        world=run_directory,
    ),
    mutation(
        "a delete deletes the index record of the next life of the record",
        (protocol._unindex_op, " or entry.generation != generation", ""),
        found_by=_WRONG,
        world=run_directory,
    ),
    mutation(
        "the last phase of a write of a record is not conditional",
        (RecordTransaction._write, "if not _is_as(found, expected):", "if expected is None and found is not None:"),
        found_by=_WRONG,
        world=run_directory,
    ),
    mutation(
        "a record is deleted, whatever it is by now",
        (RecordTransaction._delete, "if found is None or not _is_as(found, expected):", "if found is None:"),
        found_by=_WRONG,
        world=run_directory,
    ),
    mutation(
        "an index record is deleted, whatever it is by now",
        (
            RecordTransaction._answer_index,
            "case DeleteIndex(index_key, expected):\n                if self._read_index(index_key) != expected:",
            "case DeleteIndex(index_key, expected):\n                if self._read_index(index_key) is None:",
        ),
        found_by=_WRONG,
        world=run_directory,
    ),
    mutation(
        "a collection leaves the dummy that an index record names",
        (RecordTransaction._end_writers, "self._clear(entry.key, found)", "pass"),
        found_by=_WRONG,
        world=run_directory,
    ),
    mutation(
        "a collection takes an index record for garbage that is not",
        (RecordTransaction._end_writers, "if found.has(index_key):", "if False:"),
        found_by=_WRONG,
        world=run_directory,
    ),
    mutation(
        "a record is created without a dummy",
        (Protocol.create_op, "yield from self._insert_op(key, dummy)", "pass"),
        (Protocol.finish_op, "WriteRecord(key, dummy, record)", "WriteRecord(key, None, record)"),
        found_by=_WRONG,
        world=run_directory,
    ),
    mutation(
        "a write at once leaves the version of the record",
        (
            RecordTransaction._write_at_once,
            "        self._set(key, found, record)\n",
            "        import msgspec\n"
            "        version = record.version if read is None else read.version\n"
            "        self._set(key, found, msgspec.structs.replace(record, version=version))\n",
        ),
        _BY_VERSION,
        found_by=_WRONG,
        world=run_directory,
    ),
    mutation(
        "a write at once writes no index records",
        (
            RecordTransaction._write_at_once,
            "self._set_index(index_key, IndexRecord(key, record.generation, record.version - 1))",
            "pass",
        ),
        found_by=_WRONG,
        world=run_directory,
    ),
    mutation(
        "a record is deleted at once, whatever it is by now",
        (
            RecordTransaction._delete_at_once,
            "if found is None or not _is_as(found, read):",
            "if found is None or found.is_dummy:",
        ),
        found_by=_WRONG,
        world=run_directory,
    ),
    mutation(
        "a write at once does not end the writer whose index record it takes",
        (RecordTransaction._write_at_once, "if self._end_writers(index_key, entry) is Ended.VALID:", "if False:"),
        found_by=_WRONG,
        world=run_directory,
    ),
    mutation(
        "a dummy is inserted without an item that cleans up",
        (RecordTransaction._write, ".enqueue_item(item, item_id=cleanup_id(record.generation))", ""),
        found_by=(CLEANED,),
        world=run_directory,
    ),
    mutation(
        "an index becomes readable before the records have it",
        (Builder._run_stages, "self._fill()", "pass"),
        found_by=(*_WRONG, COMPLETE),
        world=run_directory,
    ),
    mutation(
        "a drop of an index leaves its keys in the records",
        (Builder._strip, "self._walk_records(lambda key, record: None)", "pass"),
        found_by=(*_WRONG, COMPLETE),
        world=run_directory,
    ),
    mutation(
        "writers do not see that an index is added or dropped",
        (RecordTransaction._check_schema, "if not self._is_schema_checked:", "if False:"),
        found_by=(*_WRONG, COMPLETE),
        world=run_directory,
    ),
    mutation(
        "a record that is written while a shard is away has no item that repairs it",
        (RecordTransaction._set, "if needs_item(found, record):", "if False:"),
        found_by=(REPAIRED,),
        world=run_directory,
    ),
    mutation(
        "a repair takes a key for indexed that another record has",
        (DataRecord.repaired, "if each not in indexed)", "if each not in indexed and each not in taken)"),
        found_by=(*_WRONG,),
        world=run_directory,
    ),
    mutation(
        "a lookup that asks all shards takes silence for an answer",
        (Scatter.named_by, "found.is_whole and not away", "True"),
        found_by=_WRONG,
        world=run_directory,
    ),
    mutation(
        "a scrub does not collect garbage",
        (Scrub._judge, "if self._repair:", "if False:"),
        found_by=(SCRUBBED,),
        world=run_directory,
    ),
)
RECORDS_IN_RACES = (
    in_a_race(
        "a record that users have written as often is taken for the same record",
        (Protocol._as_read_op, "(found.generation, found.writes, found.value) != as_read", "False"),
    ),
    in_a_race("a record of the same version is taken for the same record", _BY_VERSION),
    in_a_race(
        "a scrub does not mark a record whose value another has",
        (Protocol.reindex_op, "WriteRecord(key, read, read.sharing(index_key))", "ReadRecord(key)"),
    ),
    in_a_race(
        "a build lists a record without its value only if nobody has written the record again",
        (
            Builder._note_violation,
            "if key_of(key, record) == violation:",
            "if key_of(key, record) == violation and record.writes == 1:",
        ),
    ),
)
