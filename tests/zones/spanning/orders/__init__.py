"""All orders of the transactions of transactions across shards, over the real code and the memory engine.

scene       what is run in every order: transactions on two accounts of two shards, and who meets their locks
test_orders
"""
