"""The public API, the configuration and the command line."""
