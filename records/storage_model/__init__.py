"""The common storage model (Olive section 2.1, Uniqorn section 1): what the protocol needs of a store, and no more.

Read in this order:
    record_store  a strongly consistent read of one record, a conditional write of one record
    memory        the model in memory, for tests and as its specification
    shard         over a shard of any engine
    postgresql    over PostgreSQL; imported by its name only, as it needs the extra `postgresql`
    performing    accesses of the protocol, carried out on such stores
"""
