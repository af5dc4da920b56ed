"""What the actors measure about themselves: counts, durations, and spans, by OpenTelemetry's conventions.

    enqueueing  a producer span, if the caller has a recorded one; its context goes into the item's record
      scan      a span per batch of pointers
      serve     a span per batch of items, linked to the scan and to the items' enqueuers
      run       a consumer span per attempt: the first is the enqueuer's child, later ones are linked to it;
                current while the handler runs, in any thread or process, so that its enqueues continue the trace

Read in this order:
    metrics         every metric: name, unit, labels, buckets
    errors          the name of an error
    counters        one actor's counts, in plain lists, read on demand
    outcome_counts  what became of a worker's attempts, for telemetry, totals and the hourly history
    step_counts     how the steps of a worker's workflows ended, and how long they took
    traces          a span's context as it is stored in an item
    spans           the spans of actors
    tenants         how spans name a tenant
    enqueue_counts  what a process has enqueued
    record_counts   which lookups of records have asked all shards
    enqueueing      what a transaction enqueues: its span, its count
    run             one attempt: what is current while its handler runs, and the fields of its log records
    telemetry       what an actor gets of all this through its host

Nothing here exports: `fairlead.telemetry` does, if the environment asks for it. Without it an item costs some counts
per batch, and no span. No payload, secret or error text is ever in a span or a metric. A tenant appears as a hash, in
spans only.
"""
