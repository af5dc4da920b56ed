"""Oracles: what must be true of every run, each promise a small class of its own.

    oracle        the base of all oracles, and the suite that shows events to them
    consistency   records, index and counts agree
    pointers      the pointer invariant
    leases        no actor takes, changes or starts an item that another holds; a lease runs once at a time
    zone_operations  an item changes as the zone model says
    lease_expiries  what expired too often runs isolated, and only an attempt counts as a failure
    limits        how many items a dequeue takes, and how many run at once
    pauses        what is paused is not leased
    id_retention  ids stay taken for their time
    fairness      no tenant waits too long for the others
    work_conservation  nothing waits for long beside free slots
    item_lifecycle  every item is enqueued once, runs, and ends as allowed
    call_rates    no actor calls another in a busy loop
    in_order_lease  one scanner at a time scans in order
    leftovers     at the end there are no keys that would never be cleared
    shop          the promises of the standard workload
    answers       what it answers has happened

Source: FoundationDB section 3 ("test oracles"). Oracles observe commits, calls between actors and their replies, and
the starts and ends of handlers. So they hold for the handlers of any application.
"""
