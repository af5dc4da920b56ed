"""What a user of the queue touches."""
