"""The queues of a shard: every operation, its exact answers, and who conflicts with whom."""
