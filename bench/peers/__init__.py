"""Fairlead beside the queues that people use today, on one machine, in one run: `python -m bench.peers`.

A run is made of turns: one system in one measure, with a new server, a new store and new workers, in a process that
takes everything with it when it ends. Systems take turns within each repetition. All of them run the same function for
the same jobs, started as their own documentation starts them; what a measure does to one it does to all, through one
interface.

Read in this order:
    job            the job that every system runs, and the note it leaves
    system         the interface of a system
    systems        the systems, one module each: its settings, and where its documentation recommends them
    servers        Redis and PostgreSQL on ports and data of their own
    producing      sending jobs: as fast as they are acknowledged, or when they are due
    testbed        a server, its workers, and waiting for what they do
    measures       what is measured, one module each
    round, round_context  one system in one measure; what all its processes are told
    run            the turns of a run, and their end
    results        rows: medians and spreads
    page, plot     the tables and the picture
    record         what has been measured so far, in `results.json`
    sizes          how much, in full and quickly
    processes      the processes below this one: their CPU time, and their end
May import: everything of the product and `bench`. What a system needs is imported in its own turns only.
"""
