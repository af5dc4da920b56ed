"""Oracles: what must be true of every run, each promise a small class of its own.

    oracle        what an oracle is shown, and the bench that shows it to all of them
    consistency   records, index and counts agree
    pointers      the pointer invariant
    leases        nobody takes, changes or starts what another holds; a lease runs once at a time
    zone_operations  an item changes as the zone model says
    lease_expiries  what expired too often runs isolated, and only an attempt counts as a failure
    limits        how much a visit takes
    id_retention  ids stay taken for their time
    fairness      no tenant waits for the others too long
    work_conservation  nothing waits for long beside free slots
    incarnations  every item is enqueued once, runs, and ends as it may
    call_rates    nobody asks again and again
    in_order_lease  one scanner at a time goes in order
    leftovers     nothing is left behind at the end
    shop          what the standard workload promises its customers
    answers       and what it tells them has happened

Source: FoundationDB section 3 ("test oracles"). What they know they take from commits, from calls between actors and
their replies, and from the starts and ends of handlers, so they hold for any application's handlers.
"""
