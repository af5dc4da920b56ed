"""Are a queue zone's operations linearizable? What clients saw, against a queue zone that does one thing at a time.

Linearizable: each operation seems to happen at one instant between its call and its answer (Herlihy and Wing, 1990).
The oracles look into the store; here nobody does: what counts is what clients were told.

The operations and their right answers are those of `fairlead.simulation.zone_model`. Read in this order:
    history          operations with their times and answers, and which of them may not have happened
    formatting       calls and answers in words
    search           is there an order in which one thing at a time gives the same answers? Pure
    counterexample   a history that has no such order, made short and readable
    client           one client: the product's operations, as drawn, and what it is told
    clients          a few clients on one zone in a world of their own, with faults, and their history checked
"""
