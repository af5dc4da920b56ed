"""Snapshots of tenants in a world: is each of them the state at its time, whatever happens afterwards?

Archivists take snapshots of tenants, read them, compare them with the present, and drop them or let them expire. Their
processes die, their commits have unknown results, and the tenants move meanwhile. They also have tenants of their own,
the archives, which they write, and restore to snapshots. Nobody else may write there.

Read in this order:
    calls      the calls of an application on the snapshots of one tenant
    archivist  one archivist: draws operations, and reports their answers to the oracles
    workload   the archives and archivists of a world, and the end of all snapshots

The oracles are in `simulation.oracles.snapshots`.
"""
