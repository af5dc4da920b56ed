"""What a worker does with the items that it holds (QuiCK section 6, Algorithm 3).

An item's way through a worker. An arrow from one part to another is a hand-over:

    place(refs)         the manager's call. `arrivals` double-checks the leases
        |
        v
    Slots       WAITING      until a slot is free, `WAITING_US_MAX` at most
        |          |
        |          +----> returned: Slots -> LeaseKeeper, which lets the item vest now
        v
    worker      RUNNING      first `LeaseKeeper.mark_started`, if the item needs a lease for its start; then the handler
        |          |
        |          +----> timed out: Slots cancels the handler -> LeaseKeeper -> `Completer.time_out`, which requeues
        |          +----> lost (another worker has leased it, or its lease expired): Slots cancels the handler
        |          +----> GIVEN_UP: the handler ignores the cancellation, and another slot replaces its slot
        v
    Slots       FINISHED     from here on only the completer has the item: nothing extends, cancels or times it out
        |
        v
    Completer   commits the end together with others: completed, requeued, dead letter, dropped, or lost
        |
        v
    Slots       forgets the item

Which part owns what, each under a lock of its own:

    Slots            all held items: phase, cancellation, failure, end of the lease. Each transition is one of its
                     methods, so the first of two that exclude each other decides
    LeaseKeeper      per shard: what is to be claimed, requeued after a timeout, or returned, and is not begun
    ClaimKeeper      per shard: the worker's session, and which items it has claimed under it
    Completer        per shard: what has finished, and is in no transaction yet
    StatusReporter   per shard: when the worker status is written next, also for its tenants' items elsewhere
    ExternalEndLog   per external store: which ends are not written into the completion logs of shards yet
    ShardCounts      per shard: what became of attempts, and which of it is not in the stored rollups yet
    FailureLog       which failures were logged last
    ShardAccess      per shard: when a refusal was logged last
    Worker           which shards have loops

No part calls another one while it holds its lock, so there is no order of locks. A part hands an item over after the
transition that makes the receiver responsible. A loop that dies in between fails the worker, which then returns or
settles all its items on another thread (`Worker.abandon`).

Loops: one per slot ("slot"), one per worker ("deadlines"), and four per shard ("completer", "lease keeper",
"claim keeper", "worker status"). An external store has "external ends" in place of the last. "deadlines" waits for no
store: it decides whether handlers may go on.

Read in this order:
    in_flight          the items that a worker holds, and how many more it wants
    slots              every transition of an item
    deadlines          what is due for held items: pure decisions
    arrivals           the check of items that arrive
    lease_keeper       extensions, starts and returns
    claim_keeper       claims instead of extensions, and the heartbeats that keep them; claims: what it writes
    completer          ends; returned_items: returns; both leave out locked tenants
    moved_items        what is handed over to the loops of the shard to which a tenant has moved
    shard_loops        both, and the worker status, for one shard; shard_access: how they use it
    acknowledgement    the transactions that end or return items; zone_by_zone: one operation on items of many zones
    external_loops     the same for one external store; external_items: its ends and leases; external_claims: its
                       claims; external_end_log: how items ended there, for the completion log
    runner             running one handler, whatever its form; event_loop: where coroutines run
    job                what a handler gets
    failed_attempt     why an attempt failed
    retry              the retry policy of a kind; retry_decision: when a failed item runs again
    shard_counts       what became of attempts, counted once; home_counts: also of items in external stores;
                       failure_log: what the log shows of failures
    status_reporting   what a worker writes about itself; pending_rollups: what of it is not stored yet
    submitted_handlers handlers that are submitted while the fleet runs
"""
