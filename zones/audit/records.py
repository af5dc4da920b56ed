"""Checks of single records: they can be read, or a newer version wrote them."""

from typing import Any

from zones.audit.findings import Problem
from zones.records import Record, decode, is_newer
from zones.steps import Steps

DAMAGED_RECORD = "a record is damaged"


def check_record(tr: Any, struct: type[Record], key: bytes) -> Steps[list[Problem]]:
    """Check that a record can be read, if no newer version wrote it."""
    stored = tr.get(key)
    yield
    if stored.value is None or decode(struct, stored.value) is not None or is_newer(stored.value):
        return []
    return [Problem(DAMAGED_RECORD, key)]
