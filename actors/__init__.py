"""The actors that find work and run it (QuiCK section 6, Algorithms 1 to 3).

    Scanner  --pointers-->  Manager  --leased items-->  Worker
    peeks a shard's         leases pointers, dequeues,  runs handlers, extends leases,
    top-level queue         requeues or deletes them    completes or requeues items
       ^------ capacity flows back: a scanner scans only while a worker can take more

Read in this order:
    settings      the parameters, under the paper's names
    handlers      what a user registers for a kind
    messages      the messages between the actors
    scanner       Algorithm 1; scanning/: which pointers to take, and when to look
    manager       Algorithm 2; dispatch/: which worker gets how much of what
    worker        Algorithm 3; execution/: running items, keeping their leases, committing their ends
    coordinator   which scanner may take pointers in order, where consumers do not divide the queue
    housekeeping/ heartbeats, clocks, periodic items: what a consumer does once a second
    consumer      the actors put together in threads
    runtime/      where actors live: threads, Ray, and the supervisor of their loops
    telemetry/    what is counted, and which spans there are

May import: zones. Imported by: fairlead, simulation, bench. No actor's state is ever read to decide what is true: any
of them may be killed at any instant, and its items run again when its leases expire.
"""
