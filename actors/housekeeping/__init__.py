"""What a consumer does once a second on each shard, besides finding work.

Read in this order:
    housekeeping    heartbeats, clocks, periodic items, and the removal of expired entries
    chore_schedule  which chores are due, and which rest
    silent_sessions worker sessions without heartbeats
    late_pointers   the search for pointers that sleep longer than they may
    unknown_kinds   warnings about kinds that no consumer handles
"""
