"""What a manager decides: which pointers it processes, how many items it takes, and which worker gets them.

Read in this order:
    worker_pool          the workers, how much room each has, and the calls to them
    batch_sizing         how many tenants share the room of a call, and how much each may give
    concurrency_limiter  what the manager may take of kinds with limits
    policy_refresh       hearing of new policies while nothing is processed
    serve_result         what one call to a manager comes to
    corruption_log       telling once of what cannot be read
    reclaim              what dead workers held vests at once
    pickup_latency       how long pointers waited until they were leased, as counts
"""
