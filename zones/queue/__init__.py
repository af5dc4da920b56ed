"""One tenant's queue (QuiCK section 5): its items, their leases, and what is kept of items that have ended.

Read in this order:
    items              what callers hand in and get back
    item_keys          values by which an item is found on any shard
    unique_keys        what the end of an item that is unique in the application leaves
    stored_item        an item with its index entry, counts, payload and keys: always changed together
    index_scan         reading a vesting index by skipping from priority to priority
    dequeue_plan       which items a dequeue takes: a decision without a transaction
    dequeue            what a dequeue reads for that, and what it writes
    lease_check        whether a caller still holds the items that it names
    queue_zone         the operations of the paper: enqueue, peek, dequeue, complete, requeue
    claims             leases that end with the session of their worker
    poison_candidates  which items must run isolated, because their workers died
    progress           how far a handler says that it is
    results            what handlers returned
    periodic           work that is enqueued again and again
    id_retention       ids that stay taken after completion
    dead_letters       items that failed for good, kept until an operator retries or discards them
    dead_letter_search finding dead letters, and retrying or discarding many at once
"""
