"""Tests of the simulator, and tests of the product in simulated worlds.

Read in this order:
    test_world        time, turns, locks, killing
    test_determinism  the same seed gives the same run in each process
    test_seeds        fresh seeds and the corpus find no violation
    test_mutations    bugs planted in the product are found (mutations/)
    test_oracles      oracles that find a bug only in a chosen plan
    test_history      the search for an order of a history, alone
    test_clients      the histories of clients have an order; with a planted bug they have none
    test_event_loop   coroutines in virtual time
    test_shrink       a failing run is reduced
    test_plan         the plan of a run, drawn from its seed
    test_faults       each fault occurs, and the system recovers
    test_regressions  bugs that seeds have found in the product, each as a short story
    races/            the races that the design guards against, each forced step by step
    find_seeds        a command that finds a seed for each mutation
"""
