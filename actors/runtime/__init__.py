"""Where actors live, and what keeps them alive.

Read in this order:
    host                the seam: time, randomness, locks, threads, calls
    thread_host         actors in threads
    ray_host/           actors in Ray; the only folder that imports it
    supervisor          no loop of an actor ends, or stands still, unnoticed
    circuit_breaker     leaving a shard alone that does not answer
    periodic_task       what an actor does now and then, beside its calls
    rate_limited_log    saying once what happens often
    actor_identity      who a consumer is, and where an actor of it lives
    process_identity    the name of a process, and whether it has ended
    garbage_collection  how often the processes of a fleet look for cycles
    safe_text           text from strangers, for terminals and logs
    ray_environment     what Ray must find in the environment when it is imported
"""
