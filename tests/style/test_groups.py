"""The files and groups that `tests/conftest.py` names exist."""

from tests.conftest import GROUPS, START_FIRST, group_of
from tests.style.sources import ROOT

FILES = [path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py")]


def test_every_file_of_a_group_exists() -> None:
    assert GROUPS.keys() <= set(FILES)


def test_every_group_that_starts_first_has_tests() -> None:
    assert set(START_FIRST) <= {group_of(f"{file}::test") for file in FILES}
