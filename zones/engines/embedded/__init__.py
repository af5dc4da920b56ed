"""The embedded engine: an LMDB directory, for any number of processes on one machine.

Read in this order:
    engine         the database: snapshots and commits on LMDB
    lmdb_files     LMDB's rules for opening, growing and forking; lmdb_snapshot: for reading
    lmdb_errors    what an error of LMDB means, and its remedy
    lmdb_commit    a group of commits as one LMDB transaction
    stored_log     the commit log in the store
    group_commit   threads that share one fsync
    cross_process/ processes that share one
    write_lock     which process holds the write lock; lock_watchdog logs a holder that makes no progress
    commit_notifier  wakes processes that wait for commits of others
    shared_files   files that several processes map
    preallocation  writes pages that LMDB counts but never wrote, so that a full disk cannot refuse them later
    filesystems    file systems that a store must not be on
"""
