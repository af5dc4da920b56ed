"""Oracles: what must be true of every run, each promise a small class of its own.

    oracle        what an oracle is shown, and the bench that shows it to all of them
    contents      records, index and counts agree; an item stays what it was enqueued as
    pointers      the pointer invariant
    leases        nobody takes, changes or starts what another holds; a lease runs once at a time
    lapses        lapses and failures are counted
    limits        how much a visit takes
    names         ids stay taken for their time
    fairness      no tenant waits for the others too long
    waits         nothing waits for long beside free slots
    lives         every item is enqueued once, runs, and ends as it may
    calls         nobody asks again and again
    order         one scanner at a time goes in order
    leftovers     nothing is left behind at the end
    shop          what the standard workload promises its customers
    answers       and what it tells them has happened

Source: FoundationDB section 3 ("test oracles"). What they know they take from commits, from calls between actors and
their replies, and from the starts and ends of handlers, so they hold for any application's handlers.
"""
