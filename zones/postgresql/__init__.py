"""Queue zones whose items lie in PostgreSQL, beside data that lives there (QuiCK section 6.1).

An application's data may be in PostgreSQL. Then its items are there, too, so a user's SQL transaction changes data and
enqueues work. The tenant's shard holds the pointer of such a zone, as of any other zone.

Read in this order:
    sql/migration_001.sql  the tables: items, and what an application knows the store by
    sql/migration_002.sql  the tables of steps of workflows
    sql/migration_003.sql  sessions of workers; the columns of their claims
    sql/migration_004.sql  the table of what was cancelled lately
    sql/migration_005.sql  the traceback of an attempt that is tried again
    sql/functions.sql      what programs call: enqueue, dequeue, the ends of items
    sql/operations.sql     what applications and operators call
    sql/inspection.sql     what operators ask
    sql/steps.sql          what workflows call
    sql/sessions.sql       what workers that claim items call, and whoever keeps the tables small
    sql/grants.sql         roles get what a version has added
    errors                 what a user can meet, and what to do then
    connections            connections of our own, and what their errors mean
    schema                 init, upgrade and check
    step_store             steps of workflows whose effects are in SQL; has a table of its transactions
    item_rows              what a row holds beside its columns
    arguments              how items and queues are named in calls
    sessions               the sessions of workers that claim items
    upkeep                 what keeps the tables small
    item_store             the operations of consumers on items, each one statement
    statements             operations for plain and for asynchronous connections
    queue_operations       the operations of applications and operators
    within                 the same in a user's own transaction
    inspection             what the database tells about its queues

What each operation reads and writes, at READ COMMITTED:

    operation       locks                                         writes
    enqueue         the row of a given id that exists             the item; rings the doorbell if it is on
    dequeue         what it takes; passes over what is locked     lease columns, which are in no index
    complete        what is held; leaves out what is locked       deletes, or leaves id and result
    extend          likewise                                      lease columns
    claim           likewise; the row of the session, shared      lease columns, session
    end of session  the session's row                             deletes it
    release         what ended sessions claim; leaves out locked  ends the lease
    requeue         likewise                                      vesting time and history; ends the lease
    dead letter     likewise                                      the item's state
    cancel          the item; waits for who has locked it         deletes it, and notes that for an hour
    arrivals        nothing                                       nothing

A conditional statement locks the row, and then compares what was committed last. So two holders of one item cannot both
end it. Times are of the server's clock. They leave this package as differences, because the two clocks never meet.

May import: zones. It needs the extra `postgresql`, so other packages import it by its name only where it is used.
"""
