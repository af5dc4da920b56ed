"""The memory engine: versions in memory, this process only.

engine      the database and its store
sorted_map  the versions: an immutable tree
"""
