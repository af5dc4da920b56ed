"""A bank whose accounts live on two to four shards: are transactions across shards strictly serializable?

Clerks transfer money by transactions across shards, move it within a tenant by plain ones, and audit. Their processes
die at each stage of the protocol, their commits have unknown results or come late, and shards are away. Two keepers
settle what is left, as housekeeping does. There are no consumers, so a run costs milliseconds.

Read in this order:
    model     the bank as a sequential object: its operations and their right answers. Pure
    clerk    one clerk: draws operations, runs them by the product's own code, and records the answers
    scribe    writes and clears notes of accounts that move
    keeper    settles leftovers, and forgets decisions
    stages    faults that hit a clerk at the commits of its transactions
    world     a bank in a world of its own, with faults, and the check of its history
"""
