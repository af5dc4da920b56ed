"""The saved figures of Uniqorn: a run for each kind of store."""

from bench.figures import SavedFigures

POSTGRESQL, SIMULATED, EMBEDDED = "postgresql", "simulated", "embedded"
SAVED = SavedFigures("uniqorn", {POSTGRESQL: "PostgreSQL", SIMULATED: "simulated", EMBEDDED: "embedded"})
