"""The deterministic world in which the same code is tested (FoundationDB section 3).

One thread, greenlets for tasks, virtual time, and a seed for every choice: the scanner, manager, worker, coordinator,
housekeeping, zones and handlers of the product run here unmodified, on what they get as arguments anyway: a clock, a
host, a random generator and a database.

Read in this order:
    world         virtual time, whose turn it is, and the event log (`event_log`)
    host          one life of an actor: locks, conditions, tasks, and a clock that is wrong
    actor         nodes, and actors that are killed and live again
    network       calls between actors: late, or lost
    store         a shard: the memory engine, whose commits take time and go wrong
    database      a shard as an actor opens it: reads that take their time
    event_loop    coroutines in virtual time
    handler_runners  handlers, watched and struck, whatever their form
    cluster       consumers made of the product's own classes
    workload      a shop, whose handlers misbehave; its `producer` enqueues
    operator      somebody outside, who asks and writes
    faults/       what goes wrong now and then
    plan          what a run is made of, drawn from its seed
    zone_model    a queue zone as a sequential model, for oracles, histories and a stateful test
    replica       what a shard holds, kept up commit by commit, for
    oracles/      what must be true of every run
    corpus        how much of a plan there is to be, for
    trial         a cluster that goes through trouble, and the report of how it went
    run           the trial of consumers and a workload, from one seed
    linearizability/   the trial of a few clients on one queue zone: could one thing at a time have answered as it did?
    machine       what a user's code finds where it looks for a machine, in
    application   a user's application as the workload
    determinism_check  whether a seed runs the same twice
    shrink        a failing run with less, as long as it fails alike
    campaign      many seeds, side by side, and the probes that they must reach
    without_oracles  a world that is run for its times, not for its faults: no log, no oracles

May import: zones, actors. Imported by: tests, bench, and the command line once it is asked to simulate.
"""
