"""The races that the design of the queue guards against, each forced step by step.

A seed of the simulator may or may not meet one of them; here each happens every time. A story is told once and played
twice: with the product as it is it ends well, and says that the race did happen (a commit was refused and tried
again); with the guard taken away it ends badly, so the story can fail.

Read in this order:
    director                roles that play up to an exact point of their transactions, and wait there
    scene                   a tenant's queue, and roles made of the product's own classes
    missing_guards          guards that can be taken away
    test_sleep              a pointer falls asleep while something is inserted
    test_pointers           a pointer is made, woken, visited, deleted or cleaned by two
    test_ids                two processes that enqueue, cancel or retry one id, or move its tenant
    test_holders            an item's holder, and a process that cancels the item or leases it again
    test_extensions         a worker extends what it completes at that moment
    test_unknown_results    enqueues and dequeues whose answer tells nothing
    test_unknown_ends       completions, give-backs and cancels whose answer tells nothing
    test_pruned_log         a process that stands still while the commit log is pruned
    test_clocks             a clock that is an hour ahead
    test_housekeeping       what two do for a shard at the same moment
    test_scanners           leave to go in order, and pointers that stand in front of others
    test_windows            items that stand in front of others
"""
