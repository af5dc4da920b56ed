"""Live moves of a tenant to another shard (Olive section 4.2; QuiCK section 6, "User-move").

The tenant's users write, its queue runs and its workflows sleep meanwhile. A move copies all of the tenant, then what
was changed since, and so on until little is. Then the tenant is frozen for some milliseconds, and owned by the
destination. The decision is one transaction at the destination.

Read in this order:
    marks        what a transaction writes beside its changes while the tenant moves
    rows         which rows of a tenant are copied, and which count items
    source       the transactions at the source, and the record of the move
    destination  the transactions at the destination, and the stub at the first home
    copying      reads ranges, and sees that they have arrived as they were
    clearing     what a tenant has left on a shard that does not own it
    move_record  the key of the move's record, and asking for its end
    move_item    the item that carries out a move: made anew if it is gone
    mover        carries out a move, from wherever an earlier mover has stopped
    rescue       what somebody does who finds a tenant frozen for long
    errors       what a user can meet

The transactions, on the source (S), the destination (D), and the first home (H). `phase` is that of `OwnerRecord.move`:

| transaction | reads with conflict | reads by snapshot | writes |
|---|---|---|---|
| `begin`, S | owner record, MOVE | ended moves | phase MOVING; MOVE; the mover's local item |
| any on the tenant, S, MOVING | owner record | what it reads so | what it writes, and a mark for each |
| `take_over`, S | MOVE | - | MOVE: the mover's number |
| `prepare`, D | owner record | - | phase INCOMING, the mover's number |
| `clear_piece`, D | owner record | rows | clears what is left of the tenant |
| reads of the mover, S | - | rows; or marks and the rows that they name | - |
| `write_chunk`, D | owner record | - | rows; the number of the chunk, in the owner record |
| forgetting of all marks, S | MOVE | - | MOVE; clears all marks, because all is still to be copied |
| clearing of marks, S | MOVE | - | marks that are still as they were read |
| `freeze`, S | MOVE, owner record: not locked | - | phase FROZEN |
| `own`, D | owner record: INCOMING by this mover | - | owner record: D, epoch + 1, ARRIVING; rows; depths; pointers |
| `say_moved`, S | owner record: FROZEN | - | owner record: D, epoch + 1 |
| `arrive`, D, in pieces | owner record: ARRIVING; rows | - | other pointers, the shard's lists; last: no phase, count |
| `update_stub`, H | owner record | - | owner record: D, epoch + 1 |
| `clear_piece`, S | owner record: D, epoch + 1; MOVE: no other | rows | clears its rows and what names them; counts |
| `clear_piece`, D | owner record: closed; MOVE at D: ended | rows | as at S, after a move that was taken back |
| `forget_stub`, S | owner record: D, epoch + 1 | - | clears it, unless S is the first home |
| `close`, D | owner record | - | the mover's number: that of nobody |
| `thaw`, S | owner record, MOVE | - | no phase; MOVE: how it ended; clears the marks |
| `forget_closed`, D | owner record: closed | - | no phase: the stub as before, or nothing |

    (ROOT, MOVE, app, user)              at S: `MoveRecord`: how far it has come, for the next mover and for people
    (ROOT, DB, app, user, OWNER)         `OwnerRecord`, whose `move` states the phase
    (ROOT, DB, app, user, MARK, hash)    at S: a range that was changed, see `marks`

One item of alice, from shard A to shard B:

    1. `app.move` begins the move on A. The mover is a local item of A, so it has a lease, and another one goes on if it
       dies. It prepares B, where alice's record says INCOMING: whoever asks there is sent to A.
    2. The mover copies the item with all other rows. A worker leases the item at A meanwhile: that transaction writes
       marks for the record, for two entries of the index.
    3. The mover copies what is marked. It clears each mark that nobody has written anew since it was read.
    4. Few marks are left. A says FROZEN: all transactions on alice wait, outside of any transaction.
    5. B owns alice, with the last marked rows, her depth and her pointers. This decides. A says that she has moved.
    6. Waiting transactions are repeated at B. The worker completes the item there, under the lease that it has.
    7. What is left of her at A is cleared.

What fences whom:

- The number of the mover, in MOVE at A and in the owner record at B: a mover that was replaced changes nothing.
- The number of the chunk, in the owner record at B: a chunk of unknown result cannot be committed after a later one.
- The epoch, in both owner records: clearings, stubs and decisions of an earlier move do not touch a later one.
- Listed before cleared: B lists all that its index finds before A clears the first of it, and both count the move. So
  a reader of all shards' indexes who sees that no count has changed has missed nothing.
- Close before thaw: the destination says that nobody comes in, and only then does the source go on. The destination
  says so until then, because a mover that takes over between the two would prepare it anew, and decide.

What names a tenant outside of the tenant's own rows, by the first number of its key (`keyspace`):

| key | names | a move |
|---|---|---|
| DB | the rows of the tenant | copies them, but for marks, the ownership record, pointers (*); then clears them at A |
| TOP | pointers | makes them at B, with the decision and on arrival; deletes them at A with the rows |
| DEPTH | counts of items | adds them at B with the decision; subtracts them at A when A says moved |
| DEAD_LETTER_INDEX | dead letters | lists them at B on arrival; not any more at A, with the rows |
| LOCAL_INDEX, MOVE_COUNT | entries, no tenant | lists them at B on arrival; not any more at A, with the rows; counts |
| RETENTION | ids and results that expire | lists them at B on arrival; an entry at A names nothing until its time |
| POLICY | tenants with a policy | lists it at B with the decision; not any more at A when A says that it has moved |
| SNAPSHOT_WORK | what is due about snapshots | lists it at B, and at A not any more, as a policy |
| PAUSED_POINTER | pointers that sleep | clears them at A with the rows; the first visit at B makes them anew |
| TOMBSTONE | fences of ended runs | lists them at B on arrival, under B's FLOOR; not any more at A, with the rows |
| WORKER_SESSION | claims, notices | claims become plain leases at B, and their keys are cleared; leaves notices |
| PREPARED, PREPARED_WRITES | writes of a transaction across shards | waits: a locked tenant is not frozen |
| MOVE | the move | leaves it at A for a day |
| COMPLETION_LOG | what ended lately | leaves it: A is asked what ended there |
| ROLLUP | whose handlers took longest lately | leaves it: it was so at A |
| QUARANTINE | damaged pairs | leaves them: an operator sees to them at A |
| AUDIT_LOG | what operators did | leaves it: they did it at A |
| RECEIPT, DECISION | transactions, no tenant | leaves them: who has no answer asks where it was tried |
| META, PLACEMENT, TIME, CHANGE_COUNTER, FLOOR | the shard | leaves them: a new epoch makes runs ask for FLOOR again |
| EXTERNAL_READER | external stores | leaves it: it names no tenant |
| RECORD_TYPE | types of records | leaves it: B gets a definition before its first record of the type |
| HANDLER, PERIODIC, SESSION, LIMIT, WORKER_STATUS | kinds, consumers | leaves them: local items are no tenant's |

(*) The pointer of a queue in an external store is copied: no other row says that it is needed. It gets its entry at B
on arrival.

`tests/zones/moving/test_what_names_a_tenant.py` has a test for each line that names tenants.

`tests/protocol_models/move.py` explores every order of these transactions.
"""
