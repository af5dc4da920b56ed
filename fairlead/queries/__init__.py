"""What an application's stores hold, as the dashboard and `fairlead top` show it.

Read in this order:
    per_shard           each shard apart: one that cannot be read is reported, and the others are still shown
    external_stores     what external stores hold, and how far their readers are; each apart
    queues              the queues with work: their tenants, their counts, their delayed items
    tenants             one tenant: queues, policy, dead letters; the search for tenants
    dead_letter_groups  dead letters grouped by kind and error
    items               one item, and all that the store knows of it
    activity            what runs, and what was done in the last hour
    kinds               of each kind: how much waits, its consumers, its outcomes; pure
    periodic            the kinds that tick, and when
    items_of_kind       the items of a kind in all queues, page by page
    health              what needs attention; pure
    summary             the numbers that come first
All reads are snapshot reads of counters and bounded stretches of indexes. So a page costs the same with a million
tenants, conflicts with nothing, and says where it stopped.
May import: status, explanation, views. Imported by: dashboard, cli; per_shard also by recorded_steps, items_of_kind by
replayed_runs, external_stores by external_explanation, external_checks and telemetry.
"""
