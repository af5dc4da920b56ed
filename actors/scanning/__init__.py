"""What a scanner decides: which of the vested pointers it hands over, and when it looks (QuiCK section 6, Algorithm 1).

    way        it takes                                two consumers collide        an old pointer waits for
    random     a fraction of what it sees, by chance   by chance, the more the      its luck
                                                       larger the fraction
    in_order   the oldest ones, if the coordinator     as above, and each with      the one that goes in order
               lets it; else as `random`               the one that goes in order
    own_parts  the oldest ones of its own parts; of    while parts change hands     its owner; once it is
               other parts what is overdue, as                                      overdue, anybody
               `random`

The first two are the paper's. Whatever the way, leases decide who has a pointer: a collision costs a visit in vain, and
a way that is mistaken about the others costs collisions, or time, and nothing else.

Read in this order:
    manager_calls which manager takes another call, and the wait until one does
    shard_scan    the scans of one shard: peek, leave out, select; and the strategies by name
    strategy      what a scan asks of a strategy
    tenant_turns  in which calls the chosen pointers go: one turn for each tenant
    exclusions    what a scan passes over: what managers hold, what was left to others
    reading       reading the parts of a top-level queue, past what must not be chosen
    at_random, in_order
    partitioning  what is whose, decided from the list of live sessions; partitioned: the way that uses it
    idle_policy   how long an idle scanner sleeps
    part_watch    how an idle scanner learns of work
"""
