"""One tenant's queue (QuiCK section 5): its items, their leases, and what is left of them when they have ended.

Read in this order:
    items              what callers hand in and get back
    stored_item        an item with its index entry, counts and payload: always changed together
    index_scan         reading a vesting index by skipping from priority to priority
    dequeue_plan       leasing what the caller can run now
    lease_check        whether whoever says that it holds an item does
    queue_zone         the operations of the paper: enqueue, peek, dequeue, complete, requeue
    poison_candidates  which items must run isolated, because their workers died
    progress           how far a handler says that it is
    results            what handlers returned
    periodic           work that is enqueued again and again
    id_retention       ids that stay taken after completion
    dead_letters       items that will not run again by themselves
    dead_letter_search looking for dead letters, and deciding about many at once
"""
