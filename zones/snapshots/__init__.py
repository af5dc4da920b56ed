"""Snapshots of a tenant's own keys: taken in one commit, read, compared, restored, dropped (Olive section 3.2).

A snapshot is a number in the tenant's ownership record, which every transaction on the tenant reads with conflict. From
then on the first write of a key keeps what the key held, in the writer's own transaction. A read at a snapshot takes
what was kept, or else the present value. Queues, logs and locks are no part of a snapshot.

Read in this order:
    snapshot_keys  where copies lie, and how a copy is stored
    snapshot_list  the list of a tenant's snapshots, in its ownership record
    copying        copy on write
    reading        reads at a snapshot; what has changed since
    taking         the transactions that take and drop a snapshot
    merging        a dropped snapshot's copies go to the one before it
    restoring      the tenant's keys get the values that they had
    upkeep         what housekeeping does: expiry, and what a dead process has left

The transactions; "copy" is one of the key that is written:

| transaction | reads with conflict | reads by snapshot | writes |
|---|---|---|---|
| `take`, perhaps in a user's | owner record, last number | - | owner record, last number, WORK |
| a user's, that writes a key | owner record, copy | the key, if it has no copy | the key; its copy, if it has none |
| a user's, that clears a range | owner record, copies in the range | the range | clears it; copies of what has none |
| a read at a snapshot | - | owner record, copies, keys | - |
| `drop` | owner record | - | owner record, WORK |
| `merge_piece` | owner record, copies of two snapshots | - | copies; at the end owner record, WORK |
| `begin_restore` | owner record, last number, step logs, fences | - | owner record, last number, WORK |
| `restore_piece` | owner record, copies | copies, keys | keys, copies; at the end owner record, WORK |
| `expire` | owner record | - | owner record, WORK |

    (ROOT, DB, app, user, OWNER)        `OwnerRecord`, whose `snapshots` lists them: number, expiry, whether dropped
    (ROOT, DB, app, user, SNAP)         the last number; numbers are not used again
    (ROOT, DB, app, user, SNAP, n, key) a copy: what (DATA, key) held at snapshot n, or a mark that there was none
    (ROOT, SNAPSHOT_WORK, t, app, user) WORK: from t on housekeeping has something to do about the tenant

One key, "price", of a tenant with the snapshots 1 and 2:

    1. "price" holds 10. Snapshot 1 is taken: the list is [1].
    2. A transaction sets 20. There is no copy (1, price): it keeps 10 there. A second one sets 30, and finds the copy.
    3. Snapshot 2 is taken: the list is [1, 2]. A transaction sets 40, and keeps 30 at (2, price).
    4. A read at 1 finds (1, price): 10. A read at 2 finds (2, price): 30. Other keys have no copies, and hold at both
       snapshots what they hold now.
    5. Snapshot 2 is dropped. It stays listed, as dropped: reads at 1 still look through it. Whoever writes a key looks
       for a copy at 1 or 2, and makes a new one at 1. `merge_piece` moves each copy at 2 to 1, unless there is one: so
       (2, price) is cleared, because (1, price) says what "price" held at 1. After the last piece the list is [1].
    6. The tenant is restored to 1. The list says so, and transactions on the tenant's keys raise `Restoring`. A piece
       writes 10, as any transaction writes: it finds (1, price), and copies nothing. The last piece ends the restore.

- A transaction that began before a snapshot, and commits after it, has read the ownership record, and conflicts.
- If a process dies while it merges or restores, any other one goes on: pieces may be done twice.
- While a tenant is locked by a transaction across shards, or frozen by a move, its list does not change. While it
  moves, copies are marked as all writes are, and so they move, too.
- Without snapshots the record says nothing of them, and none of this is run.
"""
