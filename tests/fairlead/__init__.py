"""The face: the public API, configuration, the command line."""
