"""The whole system as it is used: real Ray, real LMDB, real processes, and real kills.

Read in this order:
    shop       the application whose handlers the tests run
    fleets     starting fleets, telling their processes apart, and ending every one of them
    loads      items that are enqueued all the while, and what must have become of them
    moving     tenants that move between two shards all the while
    soaking    the accounts of a soak: effects, memory, size
    allowed    what this machine allows a test to do: mount, trace
    ..._story  what runs in a mount namespace of its own
    test_...   one promise each

The tests that one process runs share a Ray cluster, because a start takes four seconds. What is marked `long` does the
same as its short form for longer, and runs when asked for: `pytest -m long tests/acceptance`.
"""
