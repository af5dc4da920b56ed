"""What a shard offers: transactions."""
