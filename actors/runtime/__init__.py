"""What actors run in, and what restarts them.

Read in this order:
    host                the interface of a host: time, randomness, locks, threads, calls
    thread_host         actors in threads
    ray_host/           actors in Ray; the only folder that imports Ray
    supervisor          fails an actor when one of its loops ends or stalls
    circuit_breaker     skips a shard that does not answer
    periodic_task       work that an actor repeats, beside its calls
    rate_limited_log    logs a frequent event once
    actor_identity      the consumer of an actor, and the process that it runs in
    process_identity    the name of a process, and whether it has ended
    garbage_collection  how often the processes of a fleet collect cyclic garbage
    safe_text           untrusted text, for terminals and logs
    ray_environment     environment variables that Ray reads when it is imported
"""
