"""What a consumer does once a second on each shard, besides finding work.

housekeeping    heartbeats, clocks, periodic items, and clearing what has expired chore_schedule  which chores are due,
and which rest late_pointers   where it looks for pointers that sleep longer than they may unknown_kinds   warnings
about kinds that no consumer handles
"""
