"""Queue zones in a real PostgreSQL."""
