"""Which of the vested pointers a scanner hands over: three ways (QuiCK section 6, Algorithm 1, lines 6 to 8).

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
    selection  what a scanner asks of a way
    turns      in which calls the chosen pointers go: one turn for each tenant
    reading    reading the parts of a top-level queue, past what must not be chosen
    at_random, in_order
    stretch    what is whose, decided from the list of live sessions
    own_parts
    ways       the ways by name
"""
