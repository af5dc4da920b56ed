"""What a scanner decides: which vested pointers it passes on, and when it scans (QuiCK section 6, Algorithm 1).

    strategy     it selects                              two consumers conflict       an old pointer waits for
    random       a fraction of what it peeks, by chance  by chance, the more the      chance
                                                         larger the fraction
    in_order     the oldest ones, if the coordinator     as above, and each with      the consumer that goes in order
                 lets it; else as `random`               the one that goes in order
    partitioned  the oldest ones of its partition; of    while partitions change      its owner; once it is
                 other partitions overdue ones, as                                    overdue, any consumer
                 `random`

The first two are the paper's. With any strategy, leases decide which consumer has a pointer. A conflict costs a
transaction in vain. A strategy with wrong knowledge of the other consumers costs conflicts, or time, and nothing else.

Read in this order:
    manager_calls which manager takes another call, and the wait until one does
    shard_scan    the scans of one shard: peek, leave out, select; and the strategies by name
    strategy      what a scan asks of a strategy
    tenant_turns  which pointers go in which call: one turn for each tenant
    exclusions    what a scan passes over: pointers that managers hold, and deferred ones
    reading       reading the parts of a top-level queue past excluded pointers
    at_random, in_order
    partitioning  which partition is whose, from the list of live sessions; partitioned: the strategy that uses it
    idle_policy   how long an idle scanner sleeps
    part_watch    how an idle scanner learns of work
"""
