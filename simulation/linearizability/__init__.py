"""Are a queue zone's operations linearizable? The answers of concurrent clients are compared with a sequential model.

Linearizable: each operation seems to happen at one instant between its call and its answer (Herlihy and Wing, 1990).
The oracles observe commits. This check uses only the answers that clients got.

The operations and their right answers are those of `fairlead.simulation.zone_model`. Read in this order:
    history          operations with their times and answers; some may not have happened
    formatting       calls and answers as text
    search           is there an order in which the model gives the same answers? Pure
    counterexample   a history without such an order, made short and readable
    history_trial    processes in a world of their own, with faults, and the check of their history
    client           one client: draws operations, calls the product's, and records the answers
    clients          such a world, of a few clients on one zone
"""
