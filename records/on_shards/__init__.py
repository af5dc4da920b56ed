"""Records on our shards: where they lie, and what one transaction does there at once that the paper needs several for.

Read in this order:
    slots          where records and index records lie
    transaction    accesses of the protocol, in one transaction on one shard
    performing     carries accesses out: one transaction for each shard, in parallel
    definitions    the definitions of a type, as each shard stores them
    operations     runs operations by these definitions
    within         records that are written within a transaction of their tenant
    scatter        lookups that ask all shards, while the shard of an index record is away
    repairing      records that were written while shards of their index records did not answer
    restored       records that a restore to a snapshot has brought back
    cleanup        the items that remove what a writer has left that stopped
    index_changes  builds and drops of indexes, as they are stored
    building       carries them out; walking: page by page over all records
    violations     records that were left without a value, because another record has it
    scrubbing      counts what writers that stopped have left, and removes it
    unique_items   keys that one item holds, of all tenants
"""
