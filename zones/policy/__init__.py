"""What operators have decided, and how tenants share the workers.

Read in this order:
    policies       what is paused, limited and weighted, in force with the commit that writes it
    limits         how many items of a kind may run, and start, in the whole fleet
    tenant_limits  the same for a tenant
    fair_share     how many items each tenant may give to one call, by its weight
"""
