"""What the actors tell of themselves: counts, how long things took, and spans, in OpenTelemetry's words.

    enqueueing  a producer span, if the caller has one that is recorded; its context goes into the item's record
      scan      a span per batch of pointers
      serve     a span per batch of items, linked to the scan and to the items' enqueuers
      run       a consumer span per attempt: the enqueuer's child in the first, linked to it in later ones;
                current while the handler runs, wherever that is, so that what it enqueues goes on from there

Read in this order:
    metrics     every metric there is: name, unit, labels, buckets
    errors      what an error is called
    tally       one actor's counts, in plain lists, read out when somebody asks; handled: what a worker counts per item
    traces      a span's context as it is stored in an item
    spans       the spans of actors; tenants: what they call a tenant
    sent        what a process has enqueued
    enqueueing  what a transaction enqueues: its span, its count
    run         one attempt: what is current while its handler runs, and what log records say of it
    telemetry   what an actor gets of all this through its host

Nothing here exports: `fairlead.telemetry` does, where the environment asks for it. Without it an item costs some counts
per batch, and no span. No payload, no secret and no error's text is ever in a span or a metric; a tenant is there as a
hash, in spans only.
"""
