"""What a shard reports about its own work, for people.

Read in this order:
    completion_log  what has ended in the last hour, found by item
    worker_status   what each worker reports about itself, every second or so
    rollups         what was done in the last hour, in intervals of ten seconds
    audit_log       what operators have done, written in the transaction that does it
    diagnosis       all that the store knows of one item: why it does not run, or how it ended
"""
