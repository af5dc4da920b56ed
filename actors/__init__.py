"""Who finds the work and runs it (QuiCK section 6, Algorithms 1 to 3).

    Scanner  --pointers-->  Manager  --leased items-->  Worker
    peeks a shard's         leases pointers, dequeues,  runs handlers, extends leases,
    top-level queue         requeues or deletes them    completes or requeues items
       ^------ room flows back: a scanner scans only while some worker can take more

Read in this order:
    settings      the parameters, under the paper's names
    handlers      what a user registers for a kind; retry: when it runs again
    job           what a handler is given, and tells
    identity      who a consumer is, and where an actor of it lives
    messages      what the actors say to each other
    host          the seam: time, randomness, locks, threads, calls
    supervisor    no loop of an actor ends, or stands still, unnoticed
    patience      with shards that do not answer, of whoever asks several in turn
    selection/    which pointers to take, in three ways, and whose turn it is
    handed_over   what a scan passes over; fullness; scanner: Algorithm 1
    waits         how long pointers waited until they were leased, as counts
    telemetry/    what is counted, and which spans there are
    rounds        what an actor does now and then, beside its calls
    crew          a manager's workers: their room, the calls to them; freeing: what dead ones held
    quotas        what it may take of kinds with limits; hearing: of rules, while it visits nothing
    portions      how many tenants share the room of a call, and how much each may give
    unreadable    telling once of what cannot be read; serving: what a call comes to; manager: Algorithm 2
    spelled       text from strangers, for logs
    elapsed       how long something has lasted, by a clock that may step
    holdings      what a worker holds; keeping, running, failed_attempt, settlement, failures, custody; worker:
                  Algorithm 3
    timekeeping   what a worker writes about itself, for people who look
    zone_by_zone  one operation on held items of many queue zones
    coordinator   who may scan in order, where not all have parts of their own
    housekeeping  signs of life, clocks, periodic items, once a second; unknown_kinds: those that nobody handles;
                  late_look: where it looks for pointers that sleep too long
    submitted     handlers that came while the fleet ran
    consumer      the actors put together in threads; thread_host: threads as a host; process_life: whether one ended
    event_loop    where a worker's coroutines run; no coroutine ends it
    ray_host/     the same in Ray; the only folder that imports it

May import: zones. Imported by: fairlead, simulation, bench. No actor's state is ever read to decide what is true: any
of them may be killed at any instant, and what it held comes back when its leases lapse.
"""
