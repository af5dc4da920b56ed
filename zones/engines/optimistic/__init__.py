"""Optimistic transactions: what the memory engine and the embedded engine share.

Read in this order:
    transaction        a transaction, in layers:
      transaction_state, reading, writing   what ends it; its reads; its writes
    writes             what a transaction has written and not yet committed
    atomics            the atomic operations; pure
    ranges             sets of keys and ranges; pure
    range_read, futures, options, watches   what a transaction hands out
    snapshot           what a transaction reads
    commit             what a transaction hands to its store: a commit on its way
    commit_log         what recent commits wrote, and who conflicts with it
    reserved_keys      the keys of the stores that no caller sees
"""
