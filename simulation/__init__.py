"""The deterministic world in which the same code is tested (FoundationDB section 3).

It has one thread, greenlets for tasks, virtual time, and a seed for every choice. The scanner, manager, worker,
coordinator, housekeeping, zones and handlers of the product run here unmodified. They get a clock, a host, a random
generator and a database as arguments, as they do in production.

Read in this order:
    world         virtual time, tasks and their turns, and the event log (`event_log`)
    host          one incarnation of an actor: locks, conditions, tasks, and a clock with skew
    actor         nodes, and actors that are killed and restarted
    log_capture   the product's log records, as lines of the event log
    network       calls between actors, with latency and losses
    store         a shard: the memory engine, with commit latency and failing commits
    database      a shard as an actor opens it, with read latency
    event_loop    coroutines in virtual time
    handler_runners  handlers of every form, observed by oracles and disturbed by faults
    open_shards   the shards as a process has opened them, and where it has found tenants
    cluster       consumers made of the product's own classes
    workload      a shop whose handlers misbehave; its `producer` and `payer` enqueue and write
    workflow_shop the workload of workflows; `workflow_shapes` draws them, `workflow_code` runs them,
                  `workflow_clients` use them, `workflow_upkeep` disturbs them, `workflow_tenants` and
                  `workflow_ledger` are where they act
    lock_clients  processes that hold locks outside of workflows; `lock_tasks` are the tasks of their lock keepers
    operator      a client outside the cluster that calls actors and writes
    tenant_moves  moves tenants between the shards meanwhile
    local_items   ends local items of shards, in worlds without consumers
    faults/       disturbances of a run
    plan          sizes, settings, latencies and faults of a run, drawn from its seed
    zone_model    the sequential model of a queue zone, for oracles, histories and a stateful test
    replica       the contents of a shard, parsed commit by commit
    oracles/      checks that hold for every run
    reduction     a smaller plan: fewer faults, items and actors
    trial         a cluster that runs with faults, the report of the run, and whether two runs of a seed are the same
    run           the trial of consumers and a workload, from one seed
    linearizability/   the trial of a few clients on one queue zone
    bank/         the trial of transactions across shards: clerks of a bank
    external/     consumers over an external store, with users' transactions
    machine       the clock, random numbers and stores that the code of an application finds
    application   a user's application as the workload
    shrink        a smaller run that breaks the same promise
    campaign      many seeds in parallel, and the probes that they must reach
    without_oracles  a world without log and oracles, for measurements of virtual time

May import: zones, actors, workflows. Imported by: tests, bench, and the command `fairlead simulate`.
"""
