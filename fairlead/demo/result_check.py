"""The check of the result: the stored index against one computed directly from the files."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import median

import msgspec

import fairlead
from fairlead.demo.application import APP, app
from fairlead.demo.corpus import SourceFile, count_words


@dataclass(frozen=True, slots=True)
class TenantRow:
    """One tenant in the fairness table. Waits: from the enqueue of a file to the commit of its index."""

    tenant: str
    files: int
    first_ms: float
    median_ms: float
    last_ms: float


@dataclass(frozen=True, slots=True)
class DemoResult:
    """The demo's result. `lost`: files that were never indexed; `doubled`: files indexed more than once."""

    files: int
    lost: int
    doubled: int
    index_matches: bool
    rows: list[TenantRow]

    @property
    def passed(self) -> bool:
        """Whether everything is as it should be."""
        return not self.lost and not self.doubled and self.index_matches


def check_index(files: Sequence[SourceFile]) -> DemoResult:
    """Read every tenant's index back, and compare it with the words of its files."""
    lost = doubled = 0
    matches = True
    rows = []
    for tenant, group in groupby(files, key=lambda file: file.tenant):
        mine = list(group)
        times, words, total, waits = app.tenant(APP, tenant).transact(_read_back)
        lost += sum(times.get(file.path, 0) == 0 for file in mine)
        doubled += sum(times.get(file.path, 0) > 1 for file in mine)
        expected = {(word, file.path): count for file in mine for word, count in count_words(file.text).items()}
        matches = matches and words == expected and total == sum(expected.values())
        if waits:
            ordered = sorted(wait_us / 1000 for wait_us in waits)
            rows.append(TenantRow(tenant, len(mine), ordered[0], median(ordered), ordered[-1]))
    return DemoResult(len(files), lost, doubled, matches, rows)


def _read_back(
    tr: fairlead.TenantTransaction,
) -> tuple[dict[str, int], dict[tuple[str, str], int], int, list[int]]:
    times = {key[1]: int.from_bytes(value, "little") for key, value in tr.get_range(("indexed",), snapshot=True)}
    words = {(key[1], key[2]): int.from_bytes(value, "big") for key, value in tr.get_range(("word",), snapshot=True)}
    total = int.from_bytes(tr.get(("words",), snapshot=True) or b"", "little")
    waits = [msgspec.msgpack.decode(value) for _, value in tr.get_range(("waited_us",), snapshot=True)]
    return times, words, total, waits
