"""Words of prose that were replaced by the field's terms do not come back; `retired_terms.txt` says what to write."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.style.sources import PRODUCT, ROOT, Offence

LIST = Path(__file__).with_name("retired_terms.txt")
TERMS_MAX = 30
SUFFIXES = (".css", ".html", ".ini", ".js", ".json", ".md", ".py", ".toml", ".txt", ".yaml", ".yml")
FOLDERS = (*PRODUCT, "tests", "docs")

# Files that must say a term: `path: terms`, and why.
ALLOWED = {
    "tests/style/retired_names.txt": "it lists retired identifiers",
    "tests/style/retired_terms.txt": "it is the list",
    "tests/style/test_retired_terms.py": "it plants them",
    "tests/style/test_retired_names.py": "it plants retired identifiers",
    "zones/records.py": "the stored reason of a dead letter is `lapsed`",
    "zones/queue/poison_candidates.py": "the stored reason of a dead letter is `lapsed`",
    "tests/actors/test_worker_leases.py": "the stored reason of a dead letter is `lapsed`",
    "simulation/oracles/zone_operations.py": "the stored reason of a dead letter is `lapsed`",
    "fairlead/views.py": "the stored reason of a dead letter is `lapsed`",
    "tests/acceptance/test_isolation.py": "the stored reason of a dead letter is `lapsed`",
    "fairlead/audit_log.py": "entries of the audit log store the action `revive`",
}


@cache
def retired() -> dict[str, str]:
    """Return what to write instead of each retired term, in lower case."""
    lines = [line for line in LIST.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return {
        term: new.strip() for terms, _, new in (line.partition(":") for line in lines) for term in terms.split(", ")
    }


@cache
def _pattern() -> re.Pattern[str]:
    # Words are also those of identifiers, apart by underscores: the names of tests are sentences.
    terms = "|".join(term.replace(" ", r"[\s_#*/]+") for term in sorted(retired(), key=len, reverse=True))
    return re.compile(rf"(?<![A-Za-z])(?:{terms})(?![A-Za-z])", re.IGNORECASE)


def retired_terms(path: str, text: str) -> Iterator[Offence]:
    """Yield each retired term in a file: in code, comments, strings and prose alike."""
    for found in _pattern().finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        term = re.sub(r"[\s_#*/]+", " ", found[0]).lower()
        yield Offence(f"{path}:{line}", f"{term!r} is retired", f"write {retired()[term]}")


def files() -> Iterable[tuple[str, str]]:
    """Yield each file of the product, the tests and the documentation that holds text, with its path from the root."""
    below = (path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*")))
    for path in (*sorted(ROOT.glob("*")), *below):
        name = path.relative_to(ROOT).as_posix()
        is_text = path.suffix in SUFFIXES or path.name == "Makefile"
        if is_text and path.is_file() and ".min." not in name and name not in ALLOWED:
            yield name, path.read_text(encoding="utf-8")


def test_no_retired_term_is_used() -> None:
    found = [each for name, text in files() for each in retired_terms(name, text)]
    assert not found, "\n" + "\n".join(f"{each.place}: {each.wrong}. Instead: {each.instead}." for each in found)


def test_the_list_is_short_and_each_new_term_is_not_retired_itself() -> None:
    lines = [line for line in LIST.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    assert len(lines) <= TERMS_MAX
    assert not [new for new in retired().values() if _pattern().search(new)]


def test_every_file_that_may_say_a_term_does() -> None:
    assert [name for name in ALLOWED if not _pattern().search((ROOT / name).read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize(
    "planted",
    [
        "# the item is buried",
        "def test_a_grave_is_found(): ...",
        "raise E('signs of\\nlife')",
        "Lapsed leases",
        "JOINT COMMIT",
    ],
)
def test_a_planted_term_is_found_once(planted: str) -> None:
    text = planted.replace("\\n", "\n")
    assert len(list(retired_terms("zones/planted.py", text))) == 1


@pytest.mark.parametrize("innocent", ["indeed", "engraved", "a collapse", "collapsed", "elapsed"])
def test_an_ordinary_word_is_not_found(innocent: str) -> None:
    assert not list(retired_terms("zones/planted.py", innocent))
