"""What a manager decides: which pointers it processes, how many items it takes, and which worker gets them.

Read in this order:
    worker_pool          the workers, their capacity and what is reserved of it, and the calls to them
    pool_member          one worker: its last report, and what was sent to it since
    batch_sizing         how many tenants share the capacity of a call, and how many items each may give
    pointer_batches      the transactions that process a batch of pointers; in halves after a conflict
    concurrency_limiter  how many items of kinds with limits the manager may take
    policy_refresh       the policies that the manager knows, refreshed while it processes no pointer
    serve_result         what one call to a manager comes to
    corruption_log       logs each queue with unreadable records once
    reclaim              items of dead workers vest at once
    pickup_latency       how long pointers waited until they were leased, as counts
"""
