"""The data of one shard: everything that is stored, and nothing that runs (QuiCK sections 5 and 6).

Read in this order:
    errors        what a user can meet, and what to do then
    keyspace      every key and its number; numbers are never reused
    layout        names in, keys out: tenants, places of queue zones, parts
    records       what the values look like, and how formats change
    settings      times that a whole fleet must agree on
    items         what callers hand in and get back
    steps         how many zones share one transaction for the latency of one
    part_writes   what a transaction writes to the keys of parts, once for all its zones
    stored_item   an item with its index entry, counts and payload: always changed together
    vesting       reading a vesting index by skipping from priority to priority
    suspicion     which items must run isolated, because their workers died
    dequeue       leasing what the caller can run now
    held          whether whoever says that it holds an item does
    queue_zone    one tenant's queue: the operations of the paper
    buried        items that will not run again by themselves
    graves        looking for buried items, and emptying many graves at once
    history       ids that stay taken after completion
    completions   what has ended lately, for whoever asks
    progress      how far a handler says that it is
    timesheets    what runs on each worker, by its own account
    series        what was done in the last hour, and what waited
    depth         how much waits now, and since when
    pointers      the top-level queue: one pointer per active zone; waking them
    rules         what operators have decided: what is paused
    deeds         what operators have done, and when
    visit         Algorithm 2: lease, dequeue, and requeue or delete a pointer
    attempt       one attempt at a transaction: ids that survive retries, receipts
    shard_time    how a consumer notices that its clock is wrong
    shard         one database, opened for its queues
    placement     which shard is a tenant's home
    process_lock  a lock that a fork leaves free in the child
    probes        rare points of all this by name, which the simulator counts
    audit/        checking every invariant of a shard, and mending what can be mended
    quarantine    where damaged records are set aside
    backup        a shard in a file, and back into any engine
    engines/      transactions: memory, embedded (LMDB), FoundationDB

An item's way: `queue_zone.enqueue` writes it beside the tenant's data and makes or wakes the zone's pointer;
`pointers.scan` finds the pointer once it vests; `visit` leases the items and requeues the pointer;
`queue_zone.complete` deletes the item, in the transaction of its effects if it has any.

May import: engines. Imported by: actors, simulation, fairlead. Every operation takes a transaction first and never
commits it; time and randomness arrive as arguments.
"""
