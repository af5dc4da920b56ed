"""An external store in the world: items beside users' data in a model of PostgreSQL, with its clients and its faults.

The product's own reader, visits and workers use it. Users enqueue and cancel in transactions of their own, at all
isolation levels, which commit late, are rolled back, or are prepared. Connections are cut, statements are cancelled,
the server restarts, a replica is promoted without the last commits, and the clock of the server steps.

Read in this order:
    items       rows, transactions, locks and snapshots: the state of the store
    statements  what is asked of a store, each as one statement within a transaction
    sessions    what is asked of the sessions of workers, and of the upkeep
    queues      what applications and operators do with items
    steps       the steps of workflows there, each one moment
    calls       the store as the product calls it, over any way to carry statements out
    server      the server: it carries statements out, later or never, and tells the oracles of commits
    client      the store as a process has it open: connections, latency, and the transactions of handlers
    faults      disturbances of the server and of its connections
    users       processes that enqueue and cancel within transactions of their own
    shop        the handlers, and who starts what
    world       the simulation with its oracles, and the end of a run
"""
