"""The top-level queue of a shard (QuiCK section 6): which queue zones have work, and which consumers run.

Read in this order:
    pointers          one pointer per active queue zone: made, moved, woken, scanned
    part_writes       what a transaction writes to the keys of parts, once for all its zones
    process_pointers  Algorithm 2: lease a pointer, dequeue from its zone, requeue or complete it
    sessions          which consumers are alive, by their heartbeats
    worker_sessions   which workers live, and the items that they claim
    silence           which worker sessions a consumer takes for dead
    clock_check       how a consumer notices that its clock is wrong
    depth             how much waits on the shard, and since when
"""
