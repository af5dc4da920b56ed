"""Load from many machines at set times, and the wait of each item: `python -m bench.load`.

The schedule of all enqueues is fixed before the first one. So a slow store or a late generator does not slow the load
down: a late enqueue is sent at once, and its wait counts from its due time. (A generator that waits for each answer
puts less load on a slow system. It also does not measure the waits of items that it did not send: "coordinated
omission".)

    Load     --schedule-->  Generator  --items-->  a fleet  --waits-->  WaitRecorder
    tenants, rates          Ray actors on          handlers that        a histogram per process,
                            the cluster            take a given time    in the store itself

Read in this order:
    load_spec    the load as a set of options
    schedule     the times and tenants of each generator's enqueues: uniform, or a few tenants far more often
    histograms   waits as HDR histograms, which merge without loss
    wait_recorder  the waits that the handlers of all processes record
    generator    one generator; a plain class, so that a test can set its clock
    generator_actors  the generators as Ray actors, started together
    outcome      the result of a load: rates, waits, failed leases
    trial        a load against fleets of consumers on Ray
May import: bench's fleets, handlers, report; Ray. Imported by: bench.handlers (the wait recorder), bench.paper.
"""
