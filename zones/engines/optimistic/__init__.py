"""Optimistic transactions: what the memory engine and the embedded engine share.

Read in this order:
    transaction        a transaction, in layers:
      transaction_state, reading, writing   what ends it; its reads; its writes
    writes             what a transaction has written and not yet committed
    atomics            the atomic operations; pure
    ranges             sets of keys and ranges; pure
    range_read, futures, options, watches   objects that a transaction returns
    snapshot           what a transaction reads
    commit             the request that a transaction submits to its store
    commit_log         the writes of recent commits, and which transactions conflict with them
    reserved_keys      the keys of the embedded store that no caller sees
"""
