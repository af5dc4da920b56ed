"""Items that are unique in the whole application, over two to four shards: has each unique key one holder at most?

Takers enqueue items of several tenants with unique keys, at once or by a reservation. Enders complete, cancel, fail,
retry and discard them. Their processes die at each access, stand still, and get no answer; shards are away; slots and
tenants move. A sweeper runs what ended items and stopped takers have left to be cleaned up. There are no consumers.

Read in this order:
    stock     which tenants, queue zones and unique keys there are
    taker     takes unique keys for items
    ender     ends items, as workers and operators do
    sweeper   runs the cleanup items, and lets kept ids expire
    auditor   at the end: every free key can be taken at once, and every held one is refused
    world     a world of these, with faults, and the check of what is stored at the end

The oracle is `simulation.oracles.unique_items`.
"""
