"""Maintenance of a whole shard: checks and repairs, and copies.

Read in this order:
    integrity/  every invariant of what is stored, and how to repair violations
    quarantine  where damaged records are set aside
    backup/     a shard in a file, and back into any engine
"""
