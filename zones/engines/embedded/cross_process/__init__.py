"""Cross-process group commit: processes that write to one store share an LMDB transaction and its fsync.

One process is leader and commits for all others, as in flat combining. The others are followers: they submit their
commit requests through a mailbox, a file that all of them map. `CrossProcessCommit` is the whole interface of this
folder; an import contract refuses others.

    flat_combining   who is leader; how followers submit and withdraw
    commit_requests  a commit as bytes: what another process needs to check and apply it
    mailbox          the slots of the processes, and their wake-ups

Gain, in enqueues per second of all processes, each with one small transaction at a time, without and with it:
    four processes   1,840 and 2,700; eight processes 1,640 and 3,500 (fast disk; `docs/performance.md`)
    four processes   88 and 214; eight processes 92 and 220 (fsync of 12 ms on two busy cores; medians of five pairs)
So the gain grows with the time of an fsync: 1.5 to 2.4 times.
"""

from fairlead.zones.engines.embedded.cross_process.flat_combining import CrossProcessCommit

__all__ = ["CrossProcessCommit"]
