"""Pointers of queues whose items lie in another store."""
