"""Queues whose items lie in an external store: what their tenants' shards hold of them (QuiCK section 6.1).

The items lie beside a user's data, in PostgreSQL for example. The tenant's shard holds the pointer of such a queue, so
scanners and managers find its work as that of any other queue.

Read in this order:
    names             how the pointer of such a queue is called
    item_ids          the ids of items there
    first_due         when an item could run first
    store             what is asked of an external store, and what it answers
    sessions          what is asked of it by workers that claim items
    upkeep            what is asked of it by the one consumer that keeps it small
    steps             what is asked of it by workflows that have steps there
    queue_operations  that part of it which applications and operators ask
    inspection        what a store tells about itself
    arrivals          what the reader of a store saves, and how it makes or wakes pointers
    cursors           where visits stopped, while many ended items lie in front
    visits            a visit of many queues: one transaction of the shard around one statement in the store

No transaction spans both stores. What keeps a committed item from lying behind a sleeping pointer:

    transaction           reads with conflict                        writes
    reader, no pointer    guard                                      record, entry, guard
    reader, asleep        guard, record                              record, entry
    reader, awake         guard                                      guard: a declared write conflict
    visit that sleeps     record, guard; at a read version taken     record, entry, guard
    or deletes            before the store said that nothing waits
    save of the reader    what it saved last                         the snapshot, once all its pointers are committed

So a visit that finds a queue empty conflicts with a reader that has seen a later commit, in whatever order they come.

May import: zones, engines. Imported by: zones.moving (names alone), zones.postgresql, actors, simulation, fairlead.
"""
