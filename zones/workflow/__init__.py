"""What is stored of a workflow, and the transactions that change it (Olive sections 3 and 6).

A *run* is one life of an item: 16 bytes, drawn by the enqueue of a named item; of an unnamed item, its id. The *step
log* of a run holds an entry for each step that is done. A step's entry is written in the transaction of the step's
effects, so a step that has happened is known to have happened (Olive section 3.2, DAAL).

The *home* of a run is the tenant in whose queue its item lies. A *participant* is a tenant on another shard on which a
step has acted, or an external store (`zones.external.steps`).

    below a tenant                             value
    STEP_LOG, run, HEAD                        `RunHead`: version, segment, state, why it is being undone
    STEP_LOG, run, PARTICIPANT, app, user      `ParticipantState`: its epoch and its shard's FLOOR, as last asked
    STEP_LOG, run, ENTRY, segment, name, n     `StepEntry`: of the n-th step of that name
    FENCE, run                                 at a participant: the lowest lease number that may act here; END
    SIGNAL, run, name, epoch, commit stamp     payload
    CHILD_RESULT, run, name, n                 how the child job of that call ended; the first report counts
    LOCK, ...                                  who holds the tenant's locks, and who waits: see `locks`
    below the shard
    TOMBSTONE, floor, app, user, run           empty; a fence that is END, by the FLOOR under which it was written
    FLOOR                                      a number; tombstones written under a lower one are gone

The transactions. Every one at home also reads the item's record with conflict, and compares the lease id.

                        reads with conflict                        writes
    step at home        the entry; if it acts on another tenant,   body, entry, pending entries; HEAD if it is the first
                        its owner, and the entry below it
    record participant  the entry of the step that asked           PARTICIPANT, pending entries, HEAD if it is the first
    ask (participant)   owner; FLOOR (nothing is written)          -
    step (participant)  owner, FENCE, the entry; FLOOR by snapshot body, entry
    raise the fence     owner, FENCE                               FENCE
    suspend             the signals and child results waited for   record (vesting time, what it waits for), entries
    checkpoint          HEAD                                       HEAD (next segment), entries of the last one cleared
    begin to undo       HEAD                                       HEAD
    end                 HEAD, the run's locks                      see `run_end`, `locks`
    send a signal       record, leased or not; dead letter         SIGNAL; record and pointer if the item waits for it
    report a child      parent's record, the result key            CHILD_RESULT; record and pointer if it is waited for
    clean up            owner, FENCE, the run's locks              entries cleared, FENCE = END, TOMBSTONE; see `locks`
    raise FLOOR         FLOOR, tombstones of lower numbers         FLOOR, those tombstones and their fences cleared

Read in this order:
    run_records         the values, and results and errors as they are stored
    step_log            the log at home: read by each attempt, appended to under the lease
    participants        steps on other shards: fences, tombstones, FLOOR
    arrival             what arrives for a run is kept, and wakes the item that waits for it
    signals             messages to a run
    children            the ends of child jobs, reported to the run that began them
    suspension          waiting without a slot
    locks               locks that runs hold, or wait for in line
    holds               items by which processes hold locks outside of workflows
    run_end             what every end of a run does
    floor               FLOOR is raised once a day
    cancellation        items that are cancelled: deleted, or undone first
"""
