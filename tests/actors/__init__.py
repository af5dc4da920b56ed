"""The classes of actors/, each on a stage of its own: virtual time, a memory store, and remotes that the test plays."""
