"""The simulator's own tests, and the product's in its world.

Read in this order:
    test_world        time, turns, locks, killing
    test_determinism  the same seed gives the same run, wherever it runs
    test_seeds        fresh seeds and kept ones find no violation
    test_mutations    bugs planted in the product are found (mutations/)
    test_oracles      one that needs a chosen plan to be found
    test_history      the search for an order of a history, alone
    test_clients      the histories of clients have one; with a planted bug they do not
    test_event_loop   coroutines in virtual time
    test_shrink       a failing run is made smaller
    test_plan         what a run is drawn from
    test_faults       each fault strikes, and is got over
    test_regressions  what seeds have found in the product, told as stories
    races/            the races that the design guards against, each forced step by step
"""
