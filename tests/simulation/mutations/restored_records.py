"""Bugs in records of tenants that are restored: each removes a guard of how they are marked and repaired."""

from fairlead.records import filling
from fairlead.records.on_shards.repairing import _has_or_had_records, mark_once_restored, needs_item
from fairlead.records.on_shards.transaction import RecordTransaction
from fairlead.records.protocol import Protocol
from fairlead.records.stored import DataRecord
from fairlead.simulation.directory.restored import UNIQUE, run_restored_directory
from fairlead.simulation.directory.world import CLEANED, COMPLETE, INDEXED, LINEARIZABLE, LISTED, REPAIRED
from tests.simulation.mutations.mutation import Mutation, in_a_race, mutation

_WRONG = (LINEARIZABLE, INDEXED, UNIQUE)

RESTORED_RECORDS: tuple[Mutation, ...] = (
    mutation(
        "a restore does not have the records of its tenant marked",
        (mark_once_restored, "if has_types(attempt.tr) or _has_or_had_records(attempt.tr, tenant):", "if False:"),
        found_by=_WRONG,
        world=run_restored_directory,
    ),
    mutation(
        "a restored record is marked without a key to repair",
        (DataRecord.begun_anew, "unindexed=keys", "unindexed=()"),
        found_by=_WRONG,
        world=run_restored_directory,
    ),
    mutation(
        "a restored record keeps its generation",
        (DataRecord.begun_anew, "generation=generation, version=1", "version=self.version + 1"),
        found_by=_WRONG,
        world=run_restored_directory,
    ),
    mutation(
        "a restored record has the keys that it had at the snapshot, whatever indexes there are by now",
        (Protocol.mark_op, "keys = keys_of(read)", "keys = read.keys"),
        found_by=(COMPLETE,),
        world=run_restored_directory,
    ),
    mutation(
        "a restore leaves the entries of what a record was before it",
        (RecordTransaction.clear_entry_if_left, "if is_left:", "if False:"),
        found_by=(LISTED,),
        world=run_restored_directory,
    ),
    mutation(
        "a restore brings a dummy back",
        (Protocol.mark_op, "if read is None:", "if read is None or read.is_dummy:"),
        found_by=(*_WRONG, CLEANED),
        world=run_restored_directory,
    ),
    mutation(
        "a restored record that was marked before has no item that repairs it",
        (needs_item, " and found.generation == record.generation", ""),
        found_by=(*_WRONG, REPAIRED),
        world=run_restored_directory,
    ),
    mutation(
        "the shard's own index does not name a restored record",
        (RecordTransaction._set, "after - before if is_same_life else after", "after - before"),
        found_by=(*_WRONG, LISTED),
        world=run_restored_directory,
    ),
)
RESTORED_RECORDS_IN_RACES = (
    in_a_race(
        "a restore has records marked only where a type of records is stored",
        (mark_once_restored, " or _has_or_had_records(attempt.tr, tenant)", ""),
    ),
    in_a_race(
        "a restore has no records marked that were deleted since the snapshot",
        (_has_or_had_records, "[] if snapshots is None else", "[] if True else"),
    ),
    in_a_race(
        "a build takes a key away that a repair is to index",
        (filling._claim_op, "if wanted in read.unindexed:", "if False:"),
    ),
)
