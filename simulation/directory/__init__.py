"""A directory of people over two to four shards: are records linearizable, by primary key and by any other key?

Clerks create, change and delete people, and look for them by their keys, which are unique. Their processes die at each
access, stand still, and get no answer; shards are away; slots move; an index is built and dropped. Janitors run the
cleanup items and the repairs. There are no consumers, so a run costs milliseconds.

Read in this order:
    model          the directory as a sequential object: its operations and their right answers. Pure
    people         how people are stored as records
    clerk          one clerk: draws operations, runs them by the product's own code, and records the answers
    janitor        runs what a creator that stopped has left to be cleaned up, and repairs
    index_changes  who adds and drops an index, and who carries that out
    outages        shards that stop answering clerks for a while
    world          a directory in a world of its own, with faults, and the check of its history
    restorer       clients who restore tenants that hold people to snapshots
    resolver       lets people give up the keys that others have, too
    restored       a directory with restores, in another world
"""
