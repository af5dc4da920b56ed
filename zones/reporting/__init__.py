"""What a shard knows about its own work, for people who look.

Read in this order:
    completion_log  what has ended lately, for whoever asks for an item
    worker_status   what each worker says about itself, every second or so
    rollups         what was done in the last hour, in slots of ten seconds
    audit_log       what operators have done, written down in the transaction that does it
    diagnosis       all that the store knows of one item: why it does not run, or what became of it
"""
