"""The races that the design of the queue guards against, each forced step by step.

A seed of the simulator may or may not reach one of them; here each happens every time. Each story has two tests. The
first runs the product as it is: the story ends well, and a commit was refused and retried, so the race did happen. The
second removes the guard: the story ends badly, so the first test can fail.

Read in this order:
    director                roles that run up to an exact point of their transactions, and wait there
    scene                   a tenant's queue, and roles made of the product's own classes
    missing_guards          guards that can be removed
    test_sleep              a pointer falls asleep while an entry is inserted
    test_pointers           two processes create, wake, process, delete or clear one pointer
    test_ids                two processes that enqueue, cancel or retry one id, or move its tenant
    test_holders            an item's holder, and a process that cancels the item or leases it again
    test_extensions         a worker extends a lease while it completes the item
    test_unknown_results    enqueues and dequeues whose commit has an unknown result
    test_unknown_ends       completions, returns and cancels whose commit has an unknown result
    test_receipts           a commit that arrives after the attempt that took its place
    test_pruned_log         a process that is paused while the commit log is pruned
    test_clocks             a clock that is an hour ahead
    test_ownership          a user's reads and writes while the tenant moves
    test_limits             an operator who changes a limit while managers hold slots of it
    test_housekeeping       two consumers that do the same for a shard at the same moment
    test_worker_sessions    a worker's claims, and a consumer that ends their session
    test_holds              locks of processes outside of workflows, and the ends of their sessions
    test_sessions           consumers that divide the top-level queue
    test_scanners           the in-order lease, and pointers that fill the window of a scan
    test_windows            items that fill the window of a dequeue
    bank_scene              two tenants with money, on two shards
    test_spanning           transactions across shards
    move_scene              a tenant that moves to another shard
    test_moves              movers that die or come late, and what others commit meanwhile
    external_scene          an external store, and processes that read it
    test_external           the reader of an external store
    test_external_sessions  the session of a worker in an external store, and a consumer that looks whether it is silent
    test_external_moves     a tenant that moves although it has a queue in an external store
    test_snapshots          snapshots, and writers, readers, movers and restores beside them
    workflow_scene          a run of Alice's that acts on tenants of two shards
    test_workflows          executors that are overtaken inside a step; where each race of workflows is forced
    test_workflow_results   commits of workflows whose result is unknown
    test_workflow_logs      what an executor knows of its run: after a crash, in a long log, behind a checkpoint
    test_workflow_leases    the lease of a workflow while a step is open
    test_workflow_arrivals  signals and ends of children, and a run that waits or ends
    test_workflow_locks     locks that are taken, released, handed over and waited for at the same moment
    test_workflow_undos     undos and cancellations, and what comes between their reads and their commits
    test_workflow_moves     tenants that move while a step acts on them
    test_workflow_orders    all of this in random orders
"""
