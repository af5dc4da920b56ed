"""Errors that a user of records can meet."""

from fairlead.zones.errors import QueueError


class RecordError(QueueError):
    """Base of what records raise; nothing was written, but by `CommitUnknown`.

    Do: see the error itself.
    """

    message = "the record was refused"


class Exists(RecordError):
    """There is a record of this primary key already.

    Do: change the record with `update` or `change`; or take another key.
    """

    message = "a record of this key exists already"


class Taken(RecordError):
    """Another record has this value in a field that is unique. Which one is not said: it may be another tenant's.

    Do: take another value. If the value should be free, look for the record with `find`.
    """

    message = "another record has this value already"


class Changed(RecordError):
    """The record is not as the caller read it: it has another version, or is gone (`found` is None).

    After a restore to a snapshot, another value may have the same version.

    Do: read the record again and decide anew; `change` does so by itself.
    """

    message = "the record has changed since it was read"


class Interrupted(RecordError):
    """Another writer, or the collection of an unused key, ended this write. Nothing was written.

    Do: try again, after a random pause if it happens twice: two writers can interrupt each other. `change` does so.
    """

    message = "another write ended this one"


class DefinitionDiffers(RecordError):
    """The program declares another type of records than is stored: other fields, or another place of the records.

    Do: `add_index` builds an index while the application runs, and `drop_index` ends one. To change how a field is
    compared, drop its index, then add it anew. Where records lie, by `tenant`, never changes: take another name.
    """

    message = "the declared type of records is not the one that is stored"


class ReservationEnded(Interrupted):
    """The reservation holds its key no more. Nothing was written.

    Do: enqueue one item for each block of `app.reserve`, within the block. Enter a block again to take the key anew.
    """

    message = "the reservation has ended: it was used already, its block is over, or another enqueue took the key"


class NoSuchRecord(RecordError):
    """There is no record of this key.

    Do: make it with `create`.
    """

    message = "there is no such record"


class IndexUnavailable(RecordError):
    """The shard that holds this value's index record does not answer, so the value cannot be taken or looked up there.

    Or the index cannot be read yet: `state` says that it is being built ("hidden"), or has violations ("pending"). Or
    the record that has the value lies in a tenant that is being restored: `reason` says so.

    Do: with a `state`, see `fairlead records`; with violations, give each record another value, then add the index once
    more. Without a `state`, try again once the shard is back, or the tenant is restored. `get`, deletes, and updates
    that add no value go on; so does `find` while a shard is away, because it asks all shards. Records that are declared
    with `repair=True` are written meanwhile.
    """

    message = "the index of this field does not answer"


class IndexAway(IndexUnavailable):
    """The shard of an index record does not answer; `find` asks all shards instead.

    Do: try again once the shard is back. `get`, deletes, and updates that add no value go on meanwhile.
    """


class KeyAdded(RecordError):
    """A write within a transaction would add an alternate key to the record; nothing was written.

    Do: use `create`, `update` or `change`, which see that no other record has the key; they commit by themselves.
    """

    message = "a key is added within a transaction"


class CommitUnknown(RecordError):
    """The store cannot tell whether the record was written: the connection broke during the commit.

    Do: read the record, and see whether it is as it was to be.
    """

    message = "it is unknown whether the record was written"


class RecordUnreadable(RecordError):
    """What is stored of a record is damaged, or a newer version wrote it; nothing was changed.

    Do: upgrade this program. If it is the newest version, `fairlead check` names damaged keys.
    """

    message = "what is stored of the record cannot be read"
