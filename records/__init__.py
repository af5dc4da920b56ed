"""Records that are found by any key, and kept unique, across shards (the Uniqorn paper).

A record lies where its primary key says. Its alternate keys are index records, which lie where those keys say. No
transaction spans the two: the protocol orders single-record writes so that nobody sees the difference.

Read in this order:
    errors          what a user can meet
    stored          data records and index records, as they are stored
    alternate_keys  what a record can be found by, and how that is packed
    accesses        what the protocol asks of stores, and what runs an operation of it
    protocol        create, update, delete, find, and the collection of garbage: pure
    storage_model/  the common storage model: a read, and a conditional write, of one record
    filling         gives a record the index record of a field whose index is being built
    definition      what a type of records is found by, as each shard stores it
    values          what users store in a record
    stated_keys     the keys that a stored value states, for a program that does not know its type
    on_shards/      records on our shards: where they lie, and what one transaction does there at once

A record's way, with two alternate keys: `create_op` inserts a dummy record, so that whoever wants one of its keys can
end this creation. It inserts two index records, in parallel. It replaces the dummy by the record: from then on the
record exists, and is found by both keys. If the process stops before, what it has left is garbage, which whoever wants
a key collects.

May import: zones. Imported by: actors, workflows, simulation, fairlead. Time, randomness and stores arrive as
arguments.
"""
