"""Every test of the engine API, over every engine."""
