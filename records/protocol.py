"""Uniqorn's protocol: writes whose alternate keys stay unique, although every store writes single records only.

The data record is the truth (Uniqorn section 2.1). An index record is inserted before the data record that has its key,
and deleted after. So an index record is never missing; it may be garbage, and whoever reads it validates it.

A write (section 2.2):

| phase | access | guard |
|---|---|---|
| 1 read the record, or insert a dummy | data | the insert is conditional on absence, or on another's dummy |
| 2 insert an index record for each new key | index | conditional on absence, or on what may be replaced |
| 3 write the record with version v + 1 | data | conditional on (g, v) as read in phase 1 |
| 4 delete index records of dropped keys | index | of this pk and g, of a lower v than phase 3 wrote, as it was read |

An index record may be replaced if it is of this pk and g and of a lower v; or of this pk and another g, while the
record is still as read in phase 1; or of another pk, once it is collected but for phase 4.

The collection of one index record whose key another record wants:

| phase | guard |
|---|---|
| 1 read it | |
| 2 read the record that it names: if that has the key, the index record is valid, and stays | |
| 3 change the record's version, or delete it if it is a dummy | conditional on (g, v) as read; its failure ends it |
| 4 delete the index record, or replace it | conditional on (pk, g, v) as read in 1 |

Phase 3 of the collection ends whoever was about to give the key to that record: phase 3 of that write fails.

Two accesses of the paper are one here, as it proposes in section 3.3. An insert that is conditional on absence needs no
read before it. And garbage is replaced, not deleted before the insert.

A store of index records may be away (section 3.2). Writes whose alternate keys are to be written all the same leave
these keys unindexed: the record has such a key, and no index record may name it. Until a repair has inserted that, a
lookup may miss the record, and another record may take the key. A repair is a write that changes nothing else:

| phase | guard |
|---|---|
| 1 read the record | |
| 2 insert an index record for each unindexed key | as in a write; a key that another record has is a violation |
| 3 write the record with version v + 1, and what is still unindexed | conditional on (g, v) as read in phase 1 |

Retries and timeouts are the caller's, as in the paper.
"""

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from fairlead.records.accesses import (
    AtOnce,
    DeleteAtOnce,
    DeleteIndex,
    DeleteRecord,
    Ended,
    EndWriters,
    ListIndex,
    LookedUp,
    LookUp,
    Op,
    ReadIndex,
    ReadRecord,
    WriteAtOnce,
    WriteIndex,
    WriteRecord,
    one,
    several,
    together,
)
from fairlead.records.alternate_keys import field_of
from fairlead.records.errors import Changed, Exists, IndexAway, IndexUnavailable, Interrupted, Taken
from fairlead.records.stored import DataRecord, IndexRecord
from fairlead.zones.keyspace import pack_text
from fairlead.zones.probes import probe

REINDEX_ATTEMPTS_MAX = 20  # Of one record, which writers and collections change meanwhile.
CLAIM_ATTEMPTS_MAX = 3  # The first finds what is there, the second replaces it; the third is for what has just gone.


class Written(NamedTuple):
    """A record as it was written, and the keys whose index records are to be deleted, see `Protocol.drop_op`."""

    record: DataRecord
    dropped: tuple[bytes, ...]


class Protocol:
    """The operations of the protocol, for stores of certain abilities.

    Args:
      ends_at_once: the stores answer `EndWriters`.
      writes_at_once: the stores answer `WriteAtOnce` and `DeleteAtOnce`.
      leaves_unindexed: a key whose index record cannot be written is left unindexed.
    """

    def __init__(
        self, *, ends_at_once: bool = False, writes_at_once: bool = False, leaves_unindexed: bool = False
    ) -> None:
        self._ends_at_once = ends_at_once
        self._writes_at_once = writes_at_once
        self._leaves_unindexed = leaves_unindexed

    def create_op(self, key: str, keys: Sequence[bytes], value: bytes, generation: bytes) -> Op[DataRecord]:
        """Create a record with alternate keys; return it. `generation`: 16 random bytes.

        Raises:
          Exists: there is a record of this key.
          Taken: another record has one of the alternate keys.
          Interrupted: another write, or a collection, ended this one.
          IndexUnavailable: an index record could not be written; not with `leaves_unindexed`.
        """
        record = DataRecord(generation, 1, tuple(keys), 1, value)
        if not keys:
            yield from self._insert_op(key, record)
            return record
        if self._writes_at_once:
            answer = yield from one(WriteAtOnce(key, None, record))
            if answer is AtOnce.WRITTEN:
                return record
        dummy = DataRecord(generation, 0, tuple(keys), 0, b"")
        yield from self._insert_op(key, dummy)
        return (yield from self.finish_op(key, dummy, record))

    def reserve_op(self, key: str, dummy: DataRecord) -> Op[None]:
        """Insert a dummy and its index records: phases 1 and 2 of a creation whose last phase is another's commit.

        Raises what `create_op` does.
        """
        yield from self._insert_op(key, dummy)
        try:
            yield from self._claim_all_op(key, dummy, dummy.keys)
        except (Taken, Interrupted, IndexUnavailable):
            yield from self._give_up_op(key, dummy)
            raise

    def finish_op(self, key: str, dummy: DataRecord, record: DataRecord) -> Op[DataRecord]:
        """Finish a creation whose dummy is inserted; return the record. Raises as `create_op`, but for `Exists`."""
        try:
            unindexed = yield from self._claim_all_op(key, dummy, dummy.keys)
        except (Taken, Interrupted, IndexUnavailable):
            yield from self._give_up_op(key, dummy)
            raise
        record = record.with_unindexed(unindexed)
        if not (yield from one(WriteRecord(key, dummy, record))):
            probe("a creator finds its dummy changed or gone")
            yield from self._give_up_op(key, dummy)
            raise Interrupted(key=key)
        return record

    def update_op(
        self, key: str, read: DataRecord, keys: Sequence[bytes], value: bytes, stated: Collection[bytes] = ()
    ) -> Op[Written]:
        """Give a record that was read a new value and new alternate keys.

        If a collection has changed the record's version since it was read, the record is read once more: the caller may
        have read it long ago.

        Args:
          stated: the keys that the value as it was read states. One that the record does not have stays so: a build has
            not come to the record, or lists it because another record has the key.

        Raises:
          Changed: a user has changed it since it was read, or it is gone.
          Taken, Interrupted, IndexUnavailable: see `create_op`.
        """
        try:
            return (yield from self._update_once_op(key, read, keys, value, stated))
        except Interrupted:
            probe("a collection has changed the version of a record while it is updated")
            found = yield from self._as_read_op(key, read)
        return (yield from self._update_once_op(key, found, keys, value, stated))

    def _update_once_op(
        self, key: str, read: DataRecord, wanted: Sequence[bytes], value: bytes, stated: Collection[bytes]
    ) -> Op[Written]:
        keys = kept_or_new(read, wanted, stated)
        record = read.rewritten(keys, value)
        added = [each for each in keys if not read.has(each)]
        dropped = tuple(each for each in read.keys if each not in keys)
        if (added or dropped) and self._writes_at_once:
            answer = yield from one(WriteAtOnce(key, read, record))
            if answer is AtOnce.WRITTEN:
                return Written(record, ())
        if added:
            record = record.with_unindexed((yield from self._claim_all_op(key, read, added)))
        if not (yield from one(WriteRecord(key, read, record))):
            raise Interrupted(key=key)
        return Written(record, dropped)

    def delete_op(self, key: str, read: DataRecord) -> Op[tuple[bytes, ...]]:
        """Delete a record that was read; return the keys whose index records are to be deleted, see `drop_op`.

        Raises:
          Changed: a user has changed it since it was read, or it is gone.
          Interrupted: collections have changed its version again and again.
        """
        if read.keys and self._writes_at_once:
            answer = yield from one(DeleteAtOnce(key, read))
            if answer is AtOnce.WRITTEN:
                return ()
        if (yield from one(DeleteRecord(key, read))):
            return read.keys
        found = yield from self._as_read_op(key, read)
        if not (yield from one(DeleteRecord(key, found))):
            raise Interrupted(key=key)
        return found.keys

    def drop_op(self, key: str, generation: bytes, dropped: Sequence[bytes], below: int | None) -> Op[None]:
        """Delete the index records of keys that a write has dropped (phase 4).

        Nobody depends on it: an index record that stays is garbage, which whoever wants the key collects.

        Args:
          generation: of the record.
          below: the version that the write has given to the record; None: the record is deleted.
        """
        yield from together([_unindex_op(each, key, generation, below) for each in dropped])

    def get_op(self, key: str) -> Op[DataRecord | None]:
        """Return the record of a key, or None."""
        record = yield from one(ReadRecord(key))
        return None if record is None or record.is_dummy else record

    def find_op(self, index_key: bytes) -> Op[tuple[str, DataRecord] | None]:
        """Return the record that has an alternate key, with its own key; or None.

        Two reads, and never more; one, if a store holds both records. No index record: nobody had the key when it was
        read, as index records are never missing. A record that has the key: it had it at the second read. A record
        without the key: no other can have had it at the first read. So either nobody had it then, or this one gave it
        up in between; and a key does not pass on without a moment in which nobody has it. The index is readable at both
        reads: while one is dropped, records lose keys that their values still state.
        """
        named: LookedUp | None = yield from one(LookUp(index_key))
        if named is None:
            return None
        record = named.record if named.is_read else (yield from one(ReadRecord(named.key, found_by=index_key)))
        return (named.key, record) if record is not None and record.has(index_key) else None

    def find_all_op(self, value_part: bytes, limit: int) -> Op[list[tuple[str, DataRecord]]]:
        """Return records that have a value in a field for lookup, with their keys, in order; at most `limit`.

        Misses no record that has the value all the while. Garbage is passed over.
        """
        found: list[tuple[str, DataRecord]] = []
        after = ""
        while len(found) < limit:
            wanted = limit - len(found)
            keys = yield from one(ListIndex(value_part, after, wanted))
            records = (yield from several([ReadRecord(each, found_by=value_part) for each in keys])) if keys else []
            for key, record in zip(keys, records, strict=True):
                if record is not None and record.has(value_part + pack_text(key)):
                    found.append((key, record))
            if len(keys) < wanted:
                break
            after = keys[-1]
        return found

    def collect_op(self, index_key: bytes) -> Op[bool]:
        """Collect an index record if it is garbage; return whether it was, and is deleted.

        Raises:
          Interrupted: another one has changed what it names.
        """
        entry = yield from one(ReadIndex(index_key))
        if entry is None or not (yield from self._end_writers_op(index_key, entry)):
            return False
        return bool((yield from one(DeleteIndex(index_key, entry))))

    def clean_op(self, key: str, generation: bytes, keys: Sequence[bytes]) -> Op[None]:
        """Remove what a creator has left that did not finish: its dummy, then index records of its generation.

        Safe to run twice, late, and while the creator goes on: it is interrupted. Does nothing once the record is real.
        """
        if (yield from self.end_dummy_op(key, generation)):
            yield from together([_unindex_op(each, key, generation, None) for each in keys])

    def end_dummy_op(self, key: str, generation: bytes) -> Op[bool]:
        """Delete the dummy of a creator that did not finish; return False if the record is real by now."""
        record = yield from one(ReadRecord(key))
        if record is None or record.generation != generation:
            return True
        if not record.is_dummy or not (yield from one(DeleteRecord(key, record))):
            return False
        probe("what a stopped creator has left is removed")
        return True

    def repair_op(self, key: str, again: Collection[bytes] = ()) -> Op[tuple[bytes, ...]]:
        """Insert the index records that a record lacks; return its keys that another record has.

        Does nothing if there is no such record, or it lacks none. Safe to run twice, late, and beside other writes.

        Args:
          again: violations that may have ended, so that their keys are tried once more.

        Raises:
          Interrupted: another write, or a collection, ended this one.
          IndexUnavailable: an index record could not be written; the others are.
        """
        read = yield from self.get_op(key)
        wanted = () if read is None else (*read.unrepaired, *(each for each in read.violations if each in again))
        if read is None or not wanted:
            return () if read is None else read.violations
        mine = IndexRecord(key, read.generation, read.version)
        outcomes = yield from together([self._repair_key_op(each, mine) for each in wanted])
        indexed = [each for each, failed in zip(wanted, outcomes, strict=True) if failed is None]
        taken = [each for each, failed in zip(wanted, outcomes, strict=True) if isinstance(failed, Taken)]
        repaired = read.repaired(indexed, taken)
        if (repaired.unindexed, repaired.violations) != (read.unindexed, read.violations) and not (
            yield from one(WriteRecord(key, read, repaired))
        ):
            raise Interrupted(key=key)
        for failed in outcomes:
            if isinstance(failed, IndexUnavailable):
                raise failed
        probe("a record that was written while an index shard was away is repaired")
        return repaired.violations

    def reindex_op(self, key: str, read: DataRecord | None, index_key: bytes) -> Op[bool]:
        """Insert the index record that a record lacks, although it is not marked: a store came back from a backup.

        Return False if another record has the key. Then this one is marked as a repair does it, until users resolve it.

        Args:
          read: the record as it was read.

        Raises:
          Interrupted: 20 attempts did not do.
          IndexUnavailable: the index record could not be written.
        """
        for _ in range(REINDEX_ATTEMPTS_MAX):
            if read is None or not read.has(index_key) or index_key in read.unindexed:
                return True
            entry = yield from one(ReadIndex(index_key))
            if entry is not None and (entry.key, entry.generation) == (key, read.generation):
                return True
            try:
                yield from self.claim_op(index_key, IndexRecord(key, read.generation, read.version))
                return True
            except Taken:
                if (yield from one(WriteRecord(key, read, read.sharing(index_key)))):
                    return False
            except Interrupted:
                pass
            read = yield from one(ReadRecord(key))
        raise Interrupted(key=key, reason="it changes all the time")

    def mark_op(self, key: str, generation: bytes, keys_of: Callable[[DataRecord], tuple[bytes, ...]]) -> Op[None]:
        """Leave all keys of a record unindexed, because it was restored to an earlier state; a repair is to follow.

        It gets a new generation, as index records of its own may have later versions than it has by now. Writers that
        have read it fail. So does a creator whose dummy came back: its keys may have passed to other records, and its
        cleanup item may have run.

        `keys_of`: returns the keys that it has to have by now; other indexes may be there than when it was written.

        Raises:
          Interrupted: another write, or a collection, ended this one.
          IndexUnavailable: the index records of a dummy could not be deleted. The dummy is gone.
        """
        read = yield from one(ReadRecord(key))
        if read is None:
            return
        if not read.is_dummy:
            keys = keys_of(read)
            if not (yield from one(WriteRecord(key, read, read.begun_anew(generation, keys)))):
                raise Interrupted(key=key)
            if keys != read.keys:
                probe("a restored record gets other keys than it had, as indexes have changed since")
            return
        if not (yield from one(DeleteRecord(key, read))):
            raise Interrupted(key=key)
        probe("a dummy is deleted, because its tenant was restored")
        yield from together([_unindex_op(each, key, read.generation, None) for each in read.keys])

    def _repair_key_op(self, index_key: bytes, mine: IndexRecord) -> Op[Taken | IndexUnavailable | None]:
        """Insert an index record; return why it was not, if the record stays unindexed."""
        try:
            yield from self.claim_op(index_key, mine)
        except (Taken, IndexUnavailable) as error:
            return error
        return None

    def _insert_op(self, key: str, record: DataRecord) -> Op[None]:
        """Insert a record where there is none, or another's dummy (phase 1)."""
        if (yield from one(WriteRecord(key, None, record))):
            return
        found = yield from one(ReadRecord(key))
        if found is not None and not found.is_dummy:
            raise Exists(key=key)
        if not (yield from one(WriteRecord(key, found, record))):
            raise Interrupted(key=key)

    def _claim_all_op(self, key: str, read: DataRecord, keys: Sequence[bytes]) -> Op[list[bytes]]:
        """Insert index records for the record as it was read (phase 2); return the keys that are left unindexed."""
        mine = IndexRecord(key, read.generation, read.version)
        are_indexed = yield from together([self._claim_or_leave_op(each, mine) for each in keys])
        return [each for each, is_indexed in zip(keys, are_indexed, strict=True) if not is_indexed]

    def _claim_or_leave_op(self, index_key: bytes, mine: IndexRecord) -> Op[bool]:
        try:
            yield from self.claim_op(index_key, mine)
        except IndexAway:
            if not self._leaves_unindexed:
                raise
            return False
        return True

    def claim_op(self, index_key: bytes, mine: IndexRecord) -> Op[None]:
        """Insert an index record, by way of a collection if there is one of another record (phase 2).

        What was read may be gone when it is to be replaced: who has dropped a key deletes its index record.
        """
        found = None
        for _ in range(CLAIM_ATTEMPTS_MAX):
            if (yield from one(WriteIndex(index_key, found, mine))):
                return
            found = yield from one(ReadIndex(index_key))
            if found is None:
                continue
            if found == mine:
                return
            if found.key != mine.key:
                if not (yield from self._end_writers_op(index_key, found)):
                    raise Taken(field=field_of(index_key))
            elif found.generation != mine.generation:
                yield from self._require_own_op(mine)
            elif found.version > mine.version:
                raise Interrupted(key=mine.key)
        raise Interrupted(key=mine.key)

    def _require_own_op(self, mine: IndexRecord) -> Op[None]:
        """See that the record is still as this writer has read it, before an index record of another life is replaced.

        Without this a slow creator would replace the index record of a creator that has taken its dummy over, and would
        then delete what it has written: the other's record would have no index record.
        """
        record = yield from one(ReadRecord(mine.key))
        if record is None or (record.generation, record.version) != (mine.generation, mine.version):
            raise Interrupted(key=mine.key)

    def _end_writers_op(self, index_key: bytes, entry: IndexRecord) -> Op[bool]:
        """See that nobody gives the key to the record that an index record names (phases 2 and 3 of a collection).

        Return False if that record has the key.
        """
        if self._ends_at_once:
            return (yield from one(EndWriters(index_key, entry))) is Ended.ENDED
        record = yield from one(ReadRecord(entry.key))
        if record is None:
            return True
        if record.has(index_key):
            return False
        if record.is_dummy:
            ended = yield from one(DeleteRecord(entry.key, record))
        else:
            ended = yield from one(WriteRecord(entry.key, record, record.bumped()))
        if not ended:
            raise Interrupted(key=entry.key)
        return True

    def _give_up_op(self, key: str, dummy: DataRecord) -> Op[None]:
        """Remove what this creation has written, as far as the stores answer; the rest is garbage."""
        try:
            yield from together([_unindex_op(each, key, dummy.generation, None) for each in dummy.keys])
            yield from one(DeleteRecord(key, dummy, is_clean=True))
        except IndexUnavailable:
            return

    def _as_read_op(self, key: str, read: DataRecord) -> Op[DataRecord]:
        """Return a record as it is now, if no user has changed it since it was read: collections may have.

        The value is compared, too: after a restore, users have written a record so often once more.

        Raises:
          Changed: a user has.
        """
        found = yield from self.get_op(key)
        as_read = (read.generation, read.writes, read.value)
        if found is None or (found.generation, found.writes, found.value) != as_read:
            raise Changed(key=key, expected=read.writes, found=None if found is None else found.writes)
        return found


def kept_or_new(read: DataRecord, wanted: Sequence[bytes], stated: Collection[bytes]) -> tuple[bytes, ...]:
    """Return the keys that a record has once a write gives it those that are wanted; `stated`: see `update_op`."""
    return tuple(each for each in wanted if read.has(each) or each not in stated)


def _unindex_op(index_key: bytes, key: str, generation: bytes, below: int | None) -> Op[None]:
    """Delete an index record of this key and generation, as it was read; `below`: only of a lower version."""
    entry = yield from one(ReadIndex(index_key))
    if entry is None or entry.key != key or entry.generation != generation:
        return
    if below is None or entry.version < below:
        yield from one(DeleteIndex(index_key, entry))
