"""Every order of the accesses of a few clients to the stores, over the real protocol (section 7 of the design).

enumeration          the search: which client makes its next access, with a stop for ever before and after each
scenes               what clients do, by name, and the stores that they begin with
shard_stores         the same accesses as our shards carry them out
tenant_transactions  writes within a transaction of a tenant, beside these clients
guards               the guards of the protocol and of our shards, each with the code without it
test_orders          all orders of each scene; each guard removed, and found
index_changes        the same for indexes that are built and dropped beside clients
test_figure_3        one order: figure 3 of the paper, line by line
"""
