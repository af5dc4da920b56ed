"""Load generators and the figures that they measure, each beside the machine's best figure in the same run.

Commands, each with `--json` and `--quick`, run as `python -m bench.core`:
    core           enqueue, drain, latency, quiet tenants and memory on one page
    drain          filling and draining alone, with each runtime
    fairness       one tenant's flood and fifty quiet tenants, on both runtimes
    idle_tenants   the cost of a million idle tenants
    idle_reads     the reads of idle consumers on a FoundationDB cluster
    idle_fleet     the cost of an idle fleet, and its first start of an item
    olive          Olive's figures 9 to 12, moves under load and transactions across shards; their page
    uniqorn        Uniqorn's table 1 and figures 4 to 7, over PostgreSQL and in simulated time; their page
    olive_snapshots  operations on a tenant with a snapshot, beside plain ones, as Olive's figure 11
    workflows      the latency of short workflows, the memory of a long one, a million that sleep
    index_build    the build of an index of records beside users: its rate, and users' p99
    long_jobs      the writes for keeping the leases of long jobs, in virtual time
    memory         the memory of each actor, and its growth
    shards         the rates of one, two and four embedded shards on one machine
    pages          the response times of the dashboard and of `why`, with a million tenants
    screenshots    the dashboard's pages as pictures
    many_tenants   a million tenants that all have work, beside 20,000
    stages         an item's processor time, stage by stage
    load           an open-loop load of any size, from many generators
    peers          the queues that people use today, side by side with this one
    paper          the experiments of QuiCK's section 8, on the machine and simulated at the paper's scale

Read in this order:
    report         a figure: medians and spreads, as a table or as JSON
    machine        the disk that the stores are on, its fsync, the load
    harness        items, tenants, pacing; one application in many processes
    stores         the stores of a command: embedded ones, or a FoundationDB cluster
    floor          a plain loop over LMDB, to compare with; floor_foundationdb: over FoundationDB
    handlers       the application that the fleets run; it records the start of each item
    fleets         a fleet in a process of its own
    ray_cluster    the Ray cluster beneath, and empty actors on it
    process_cost   CPU time and memory of a process
    enqueueing, drain, latency, quiet_tenants   the four measurements of `core`; sizes: their sizes
    load/          generators as Ray actors, open loop, and the waits of all processes
    peers/         other queues in their best settings, and the measures of all of them
    ycsb           YCSB's core workloads a to d, for Olive's figures 11 and 12
    paper/         figures 4 to 7, their data, plots and page
    figures        the saved runs of a paper's figures, and a page's section for each: Olive's, Uniqorn's
    uniqorn/       the workload of Uniqorn's section 4, and what it measures
    olive_page/    docs/paper/olive.md, from what `olive` has measured
    telemetry, no_telemetry   the cost of telemetry
May import: everything of the product, the simulator, and Ray. Imported by: tests.
"""
