"""What an application's stores hold, as the dashboard and `fairlead top` show them.

Read in this order:
    per_shard  every shard by itself: one that cannot be read is told, and the others are still shown
    queues     the queues that have work: whose they are, how much waits, what is delayed
    tenants    one tenant: its queues, its rule, what is buried
    items      one item, with all that is known of it
    activity   what runs, and what was done over the last hour
    kinds      how much of each kind waits, who does it, how it went; pure
    health     what needs somebody's attention; pure
    summary    the numbers that come first
Everything is read by snapshot, from counters and bounded stretches of indexes: a look costs the same with a million
tenants, conflicts with nothing, and says where it stopped.
May import: status, explanation, views. Imported by: dashboard, cli.
"""
