"""What holds for items in a tenant's shard as for items in PostgreSQL: each test runs over both kinds of queue."""
