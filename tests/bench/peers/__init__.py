"""The comparison with other queues: that its rows, tables and times say what happened, and that it leaves nothing.

What runs a peer needs its environment and its server, and is skipped where one is missing.
"""
