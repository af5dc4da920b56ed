"""Fairlead beside the queues that people use today, on one machine, in one run: `python -m bench.peers`.

A run has rounds: one system in one measure, with a new server, a new store and new workers. Each round has a process of
its own, and all processes below it end with it. The systems alternate within each repetition. All of them run the same
function for the same jobs, and are started as their own documentation says. A measure handles all systems through one
interface.

Read in this order:
    job            the job that every system runs, and the record of its start
    system         the interface of a system
    systems        the systems, one module each: the settings, and their recommendation in the documentation
    servers        Redis and PostgreSQL with their own ports and data
    producing      sending jobs: as fast as they are acknowledged, or when they are due
    testbed        a server and its workers
    measures       the measures, one module each
    round, round_context  one system in one measure; the environment of all its processes
    run            the rounds of a run, and their end
    results        rows: medians and spreads
    bars           what was to be reached in PostgreSQL
    page, plot     the tables and the picture
    record         the measurements so far, in `results.json`
    sizes          the sizes, full and quick
    processes      the processes below this one: their CPU time, and their end
May import: everything of the product and `bench`. The libraries of a system are imported in its own rounds only.
"""
