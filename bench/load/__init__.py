"""Load from many machines at set times, and how long each item waited: `python -m bench.load`.

Which item is sent when is decided before anything is sent, so a store that is slow, or a generator that is late, does
not slow the load down: what is late is sent at once, and its wait counts from when it was due. (A generator that waits
for an answer before it sends the next item asks less of a system the slower that is, and leaves out the waits of all
that it did not send: "coordinated omission".)

    Load     --who, when-->  Generator  --items-->  a fleet  --waits-->  Tally
    tenants, rates           Ray actors over        handlers that        a histogram per process,
                             the cluster            take a given time    kept in the store itself

Read in this order:
    load_spec    the load as a set of options
    schedule     when each generator enqueues, and for which tenant: all alike, or a few far more often
    histograms   waits as HDR histograms, which merge without loss
    wait_recorder  what the handlers of all processes tell of their starts
    generator    one generator; plain, so that a test can hold its clock
    generator_actors  the generators as Ray actors, started together and watched
    outcome      what came of a load: rates, waits, leases that failed
    trial        a load against fleets of consumers on Ray
May import: bench's fleets, handlers, report; Ray. Imported by: bench.handlers (the wait recorder), bench.paper.
"""
