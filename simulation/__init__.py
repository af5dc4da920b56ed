"""The deterministic world in which the same code is tested."""
