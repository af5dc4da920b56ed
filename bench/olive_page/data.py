"""The saved figures of Olive: a run on each engine."""

from bench.figures import SavedFigures

EMBEDDED, FOUNDATIONDB = "embedded", "foundationdb"
BETWEEN = "embedded to foundationdb"
ENGINE_NAMES = {EMBEDDED: "embedded", BETWEEN: "embedded to FoundationDB", FOUNDATIONDB: "FoundationDB"}
SAVED = SavedFigures("olive", ENGINE_NAMES)
