"""Oracles: the promises that hold in every run, each a small class.

    oracle        the base of all oracles, and the suite that shows events to them
    consistency   records, index and counts agree
    pointers      the pointer invariant
    leases        no actor leases, changes or starts an item that another holds; a lease runs once at a time
    zone_operations  an item changes as in the zone model
    claims        claims have keys, and last as long as their worker sessions; these last as long as heartbeats come
    lease_expiries  an item that expired too often runs isolated, and only a failed attempt counts as a failure
    limits        the number of items that a dequeue leases, and that run at once
    pauses        paused items are not leased
    id_retention  ids are retained for their time
    fairness      no tenant waits too long for the others
    work_conservation  no item waits for long while slots are free
    item_lifecycle  every item is enqueued once, runs, and ends as allowed
    call_rates    no actor calls another in a busy loop
    in_order_lease  one scanner at a time scans in order
    found_by_keys  items are found by their keys, also while tenants move
    leftovers     at the end there are no keys that would never be cleared
    shop          the promises of the standard workload
    answers       acknowledged actions have happened
    spanning      what transactions across shards store fits together, and is gone at the end
    bank          money moves, and never changes its total
    workflow_steps  a workflow does what a sequential execution would do
    workflow_locks  locks of workflows exclude, and are handed over; steps are done under them
    process_locks  what a process commits under a lock outside of workflows, and which locks it keeps
    workflow_arrivals  a workflow takes each signal once, and does not wait beside what has arrived

Source: FoundationDB section 3 ("test oracles"). Oracles observe commits, calls between actors and their replies, and
the starts and ends of handlers. So they hold for the handlers of any application.
"""
