"""The data of one shard: everything that is stored, and nothing that runs (QuiCK sections 5 and 6).

Read in this order:
    errors              what a user can meet, and what to do then
    keyspace            every key and its number; numbers are never reused
    layout              names in, keys out: tenants, locations of queue zones, parts
    records             what the values look like, and how formats change
    settings            times that a whole fleet must agree on
    pipelining          how many zones share one transaction for the latency of one
    queue/              one tenant's queue: the operations of the paper
    top_level/          the top-level queue: pointers, sessions, Algorithm 2
    policy/             what is paused and limited; how tenants share the workers
    reporting/          answers for people: what ended, what runs, why an item waits
    transaction_runner  one attempt at a transaction: ids that survive retries, receipts
    open_shard          an open shard, as far as the protocols between shards use it
    ownership           whether a shard owns a tenant, and whether the tenant is locked, or moves
    tenant_transaction  what a user's function gets: the tenant's keys and queue
    open_body           whether the caller is the body of a transaction, which may not begin another one
    spanning/           transactions across shards: locks, their decision, and recovery by whoever meets a lock
    local_index         what the shard's tenants hold, found by a value of it
    local_index_search  such a value on all shards, while tenants move
    moving/             live moves of a tenant to another shard
    snapshots/          snapshots of a tenant's own keys: copy on write, reads, drops, restores
    shard               one database, opened for its queues
    tenant_search       tenants by the beginning of their names
    placement           which shard is a tenant's home
    submitted_handlers  code that was submitted to a running fleet
    maintenance/        checking, repairing and copying a shard
    engines/            transactions: memory, embedded (LMDB), FoundationDB
    external/           pointers of queues whose items lie in another store
    postgresql/         queue zones whose items lie in PostgreSQL, beside a user's data
    durations           durations of users, as seconds or `timedelta`, and of the code, as microseconds
    elapsed             how long something has lasted, by a clock that may be set
    process_lock        a lock that a fork leaves free in the child
    probes              rare points of this code by name, which the simulator counts
    tuples              the tuple layer of FoundationDB

An item's way: `QueueZone.enqueue` writes the item beside the tenant's data and makes or wakes the zone's pointer.
`pointers.scan` finds the pointer once it vests. `process_pointers` leases the items and requeues the pointer.
`QueueZone.complete` deletes the item, in the transaction of its effects if it has any.

May import: engines. Imported by: actors, simulation, fairlead. Every operation takes a transaction as its first
argument and never commits it. Time and randomness arrive as arguments.
"""
