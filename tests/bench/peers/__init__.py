"""Tests of the comparison with other queues: rows, tables, times, and the end of all processes.

A test that runs a peer needs its environment and its server, and is skipped if one is missing.
"""
