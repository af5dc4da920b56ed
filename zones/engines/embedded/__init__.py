"""The embedded engine: an LMDB directory, for any number of processes on one machine.

Read in this order:
    engine         the database: snapshots and commits on LMDB
    lmdb_files     the rules of LMDB about opening, growing, forking; lmdb_snapshot: about reading
    lmdb_errors    what an error of LMDB means, and what to do
    lmdb_commit    a group of commits as one LMDB transaction
    stored_log     the commit log in the store
    group_commit   threads that share one fsync
    cross_process/ processes that do
    write_lock, lock_watchdog   who holds up all other writers, and telling that somebody does
    commit_notifier  what wakes who waits for commits of other processes
    shared_files   files through which processes wake each other
    preallocation  pages that LMDB never wrote, and a full disk has no room for
    filesystems    where a store must not live
"""
