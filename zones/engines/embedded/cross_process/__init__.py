"""Cross-process group commit: processes that write to one store share an LMDB transaction and its fsync.

The process that has the lead commits for all others, as flat combining does with threads. The others hand in their
commits through a mailbox, a file that all of them map. `flat_combining.CrossProcessCommit` is the whole interface.

    flat_combining   who leads, hands in, and takes back
    commit_requests  a commit as bytes: what another process needs to check and apply it
    mailbox          the slots of the processes, and their wake-ups
"""
