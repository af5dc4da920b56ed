"""The saved figures of Uniqorn: a run for each kind of store."""

from bench.figures import SavedFigures

POSTGRESQL, SIMULATED, EMBEDDED, FOUNDATIONDB = "postgresql", "simulated", "embedded", "foundationdb"
STORE_NAMES = {POSTGRESQL: "PostgreSQL", SIMULATED: "simulated", EMBEDDED: "embedded", FOUNDATIONDB: "FoundationDB"}
SAVED = SavedFigures("uniqorn", STORE_NAMES)
