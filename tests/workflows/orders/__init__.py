"""All orders of the transactions of two executors and a cleanup, over the real code and the memory engine.

schedule    processes that stop before each commit, and the search for an order that breaks an invariant
scene       a workflow on two shards, its executors, its cleanup, and what operators do meanwhile
test_orders
"""
