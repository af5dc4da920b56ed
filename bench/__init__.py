"""Load generators and the figures they measure, each beside what the machine could do at best in the same run.

Commands, each with `--json` and `--quick`, run as `python -m bench.core`:
    core           enqueue, drain, latency, quiet tenants and memory on one page
    drain          filling and draining alone, with each runtime
    fairness       one tenant's flood and fifty quiet tenants, on both runtimes
    idle_tenants   what a million tenants cost that have nothing to do
    idle_reads     what idle consumers ask of a FoundationDB cluster
    idle_fleet     what a fleet costs that has nothing to do, and how soon it wakes
    memory         what each actor holds in memory, and whether it grows
    shards         what more embedded shards bring on one machine
    pages          how soon the dashboard and `why` answer, with a million tenants
    screenshots    the dashboard's pages as pictures
    many_tenants   a million tenants that all have work, beside 20,000
    stages         where an item's processor time goes
    load           an open-loop load of any size, from many generators
    peers          the queues that people use today, side by side with this one
    paper          the experiments of QuiCK's section 8, on the machine and simulated at the paper's scale

Read in this order:
    report         a figure: medians and spreads, as a table or as JSON
    machine        the disk that the stores are on, its fsync, the load
    harness        items, tenants, pacing; one application in many processes
    stores         where a command's stores are: embedded ones, or a FoundationDB cluster
    floor          a plain loop over LMDB: what everything is compared with; floor_foundationdb: over FoundationDB
    handlers       the application that the fleets run; it notes when an item starts
    fleets         a fleet in a process of its own
    ray_cluster    the Ray cluster beneath, and empty actors on it
    process_cost   CPU time and memory of a process
    enqueueing, drain, latency, quiet_tenants   what `core` measures, one each; sizes: how much of it
    load/          generators as Ray actors, open loop, and the waits of all processes
    peers/         other queues in their best settings, and what is measured of all of them
    paper/         figures 4 to 7, their data, plots and page
May import: everything of the product, the simulator, and Ray. Imported by: tests.
"""
