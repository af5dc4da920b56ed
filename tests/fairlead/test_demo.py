"""The demo replaces its own store only, and prints one answer."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from fairlead.cli import demo as command
from fairlead.demo import demo_run
from fairlead.demo.corpus import SourceFile, read_library
from tests.fairlead.shell import run

DEMO = ("demo", "--runtime", "threads", "--data", "proj")


@pytest.fixture(autouse=True)
def short_library(empty_directory: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The library has three files, which are indexed quickly."""

    def first_files() -> list[SourceFile]:
        return list(islice(read_library(), 3))

    monkeypatch.setattr(demo_run, "read_library", first_files)
    monkeypatch.setattr(command, "read_library", first_files)
    return empty_directory


def test_the_demo_replaces_its_own_store() -> None:
    for _ in range(2):
        answer = run(*DEMO, "--json")
        assert (answer.code, answer.json["files"], answer.json["lost"]) == (0, 3, 0)
    assert run(*DEMO, "--search", "import").code == 0


def test_what_the_demo_did_not_make_is_not_replaced(short_library: Path) -> None:
    mine = short_library / "proj" / "store"
    mine.mkdir(parents=True)
    (mine / "thesis.txt").write_text("mine")
    answer = run(*DEMO)
    assert (answer.code, "did not make" in answer.err, "--data" in answer.err) == (2, True, True)
    assert (mine / "thesis.txt").read_text() == "mine"


def test_a_link_to_the_demos_store_is_not_followed(short_library: Path) -> None:
    assert run(*DEMO).code == 0
    (short_library / "other").mkdir()
    (short_library / "other" / "store").symlink_to(short_library / "proj" / "store")
    assert run("demo", "--runtime", "threads", "--data", "other").code == 2


@pytest.mark.parametrize("there", ["photos", "store"])
def test_a_search_where_there_is_no_index_says_so_and_writes_nothing(short_library: Path, there: str) -> None:
    (short_library / "proj" / there).mkdir(parents=True)
    answer = run(*DEMO, "--search", "import")
    assert (answer.code, "Do: " in answer.err) == (2, True)
    assert [path.name for path in (short_library / "proj").rglob("*")] == [there]


def test_a_search_that_has_to_index_first_answers_in_one_object() -> None:
    first = run(*DEMO, "--search", "import", "--json").json
    assert (first["lost"], first["word"]) == (0, "import")
    again = run(*DEMO, "--search", "import", "--json").json
    assert first["found"] == again["found"] != []


def test_the_demos_help_has_no_markup_in_it() -> None:
    assert "\\b" not in run("demo", "--help").out


def test_a_directory_that_cannot_be_one_is_named(short_library: Path) -> None:
    (short_library / "proj").write_text("mine")
    answer = run("demo", "--runtime", "threads", "--data", "proj/demo")
    assert (answer.code, str(short_library / "proj") in answer.err, "Do: " in answer.err) == (3, True, True)


def test_a_bug_in_the_demo_s_own_code_ends_the_demo_and_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, the thread that stores the files ended unnoticed, and the demo waited for three minutes."""

    def broken(file: SourceFile) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(demo_run, "store_file", broken)
    monkeypatch.setattr(demo_run, "TIMEOUT_US", 2_000_000)
    with pytest.raises(ZeroDivisionError, match="a bug"):
        demo_run.run_demo(Path("proj"), runtime="threads", on_event=lambda _: None, progress=lambda *_: None)
