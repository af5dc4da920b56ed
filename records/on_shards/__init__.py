"""Records on our shards: where they lie, and what one transaction does at once that the paper needs several for.

Read in this order:
    slots        where records and index records lie
    transaction  accesses of the protocol, in one transaction on one shard
    performing   carries accesses out: one transaction for each shard, in parallel
    scatter      lookups that ask all shards, while the shard of an index record is away
    definitions  the definitions of a type, as each shard stores them
    repairing    records that were written while shards of their index records did not answer
    cleanup      the items that remove what a writer has left that stopped
"""
