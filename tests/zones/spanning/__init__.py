"""Transactions across shards."""
