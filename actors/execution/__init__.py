"""What a worker does with the items that it holds: runs them, keeps their leases, and settles them (Algorithm 3).

Read in this order:
    in_flight          every accepted item, from its arrival to its settlement
    runner             running one handler, whatever its form; event_loop: where coroutines run
    job                what a handler is given, and tells
    retry              when a failed item runs again
    failed_attempt     why an attempt failed; failure_log: what the log says of it
    deadlines          what must be done for held items, besides running them
    acknowledgement    what becomes of leased items, many in one transaction
    zone_by_zone       one operation on held items of many queue zones
    completer          what a worker owes one shard
    status_reporting   what a worker writes about itself, for people who look
    submitted_handlers handlers that came while the fleet ran
"""
