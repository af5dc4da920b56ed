"""Transactions across shards (Olive section 4.4): optimistic, and decided by one record on one of the shards.

A body reads and writes tenants of several shards. It reads in one open transaction for each shard, and its writes are
buffered. Its *home shard* is that of the first tenant it names; the others are its *participants*. What follows is a
two-phase commit whose coordinator cannot fail, because what it has decided is stored, and whoever meets its locks can
go on for it.

Read in this order:
    transaction_keys  the keys of the records
    write_buffer      what a body has written to one shard: its own reads see it, and no one else's do
    write_set         the same as stored bytes, and how it is carried out
    participant       the transactions on a participant: prepare, apply, release, validate
    decision          the transactions on the home shard: decide, ask, abort, forget
    recovery          settles what another process has prepared, and left
    committed         what this process has committed, and carries out: many transactions in one commit
    lock_wait         what a transaction does that meets a lock
    leftovers         settles what nobody touches, and forgets old decisions
    lost_home         what an operator drops whose home shard is lost
    tenant_view       what a body gets for each tenant
    coordinator       runs a body to its end: prepares, decides, answers, applies

The transactions; "home" is the home shard. All but the first three have nothing else in them:

| transaction | reads with conflict | reads by snapshot | writes |
|---|---|---|---|
| the body, on each shard | owner records; what the body reads | what it reads so | - |
| `prepare`, in the body's, on a participant | owner records | - | PREPARED, its pieces, locks |
| `decide`, in the body's, at home | DECISION: must be absent | - | DECISION, the body's writes, a record |
| `apply`, on a participant | PREPARED, pieces, owner records | - | the body's writes; clears PREPARED, locks |
| `release`, on a participant | PREPARED, owner records | - | clears PREPARED, locks |
| `ask`, at home | - | DECISION | - |
| `abort`, at home | DECISION | - | DECISION, if it is absent |
| `forget`, at home | - | DECISION, PREPARED elsewhere | clears DECISION |
| any other one on a tenant | owner record | - | nothing, if a lock is in its way |

    (ROOT, PREPARED, transaction)            `PreparedRecord`: the home shard, whom it has locked
    (ROOT, PREPARED_WRITES, transaction, n)  piece n of its `WriteSet`
    (ROOT, DECISION, transaction)            `DecisionRecord`: committed or aborted, and where it has prepared
    (ROOT, DB, app, user, OWNER)             `OwnerRecord`, whose `locks` name transactions

The record is what the caller wants to be written with the decision (`coordinator.HomeRecord`): the entry of a step of a
workflow, whose lease is read with conflict, too. A transaction with a record has its home where the record is. It needs
no decision if there is no participant: the record is its receipt.

A transaction's id is when it began, random bytes, and the number of the attempt (`records.TransactionId`).

A lock lies in the tenant's owner record, which every transaction on the tenant reads with conflict. It is exclusive if
the transaction writes to the tenant, and shared if it has only read there. A shared lock lets others read. Locks are
taken by `prepare`, a few milliseconds before the decision, and by tenant: so there are no phantoms.

One transfer, from alice on shard A to bob on shard B:

    1. The body reads alice's balance in a transaction on A, and bob's in one on B. It writes both, into buffers.
    2. The transaction on A, the home shard, has its read version. It had it before anything is prepared.
    3. The transaction on B writes PREPARED with bob's new balance, and an exclusive lock in bob's owner record. It
       commits: the store validates what was read on B. From now on nobody reads or writes bob.
    4. The transaction on A reads that there is no DECISION, writes alice's new balance and DECISION: committed. It
       commits: the store validates what was read on A. This is the answer to the caller.
    5. A new transaction on B applies bob's new balance, and clears PREPARED and the lock.

If the process dies after 3, whoever meets bob's lock asks A. There is no DECISION, so it *writes* that the transaction
is aborted; should the process live on, its commit in 4 conflicts with that. Then it releases bob. If the process dies
after 4, whoever meets the lock finds the decision, and does 5.

- A lock is not waited for in the order of requests. Of two transactions across shards the older one aborts the younger
  one at once, if that is undecided. So does one that is tried again, with its own earlier attempts, and a step of a
  workflow with those of a dead worker. All others wait for a second before they do so. A retry keeps its age, so each
  transaction is the oldest at some time.
- Unknown results: that of a `prepare` is told by PREPARED; that of `decide` by DECISION, or by the abort that is
  written there; that of `apply` by PREPARED, which is gone.
- A decision is kept for as long as a receipt, ten minutes, and until no shard that it names has PREPARED of it. It is
  the receipt of the transaction.
- Without any writes nothing is locked. On each shard but the one that was read last, the transaction is committed with
  a declared write conflict, so that the store validates its reads. So all was as it was read at one instant: when the
  last shard gave its read version. An error of the body counts if its reads are valid in this way.
- Serializable, also together with transactions on one tenant; strict, because the answer follows the decision.

`tests/protocol_models/spanning.py` explores every order of these transactions as a model, and
`tests/zones/spanning/orders` those of this code, in smaller scenes.
"""
