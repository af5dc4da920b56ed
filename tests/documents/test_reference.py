"""The reference leaves out no public name, and the examples in the docstrings that it shows do what they say."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any
from unittest.mock import create_autospec

import pytest

import fairlead
import fairlead.testing
from tests.documents.blocks import DOCS
from tests.fairlead.shell import all_commands
from tests.test_docs import wrong

NAMES = set(re.findall(r"^::: fairlead\.(\w+)", "".join(
    page.read_text(encoding="utf-8") for page in (DOCS / "reference").glob("*.md")), re.MULTILINE))  # fmt: skip


def docstrings() -> Iterator[tuple[str, str]]:
    """Yield each docstring that the reference shows, with the name of what it belongs to."""
    shown: list[tuple[str, Any]] = [(name, getattr(fairlead, name)) for name in sorted(NAMES)]
    for name, found in shown:
        yield name, inspect.getdoc(found) or ""
        members = vars(found).items() if inspect.isclass(found) or inspect.ismodule(found) else ()
        for member, value in members:
            foreign = inspect.ismodule(found) and getattr(value, "__module__", found.__name__) != found.__name__
            if not (member.startswith("_") or foreign):
                yield f"{name}.{member}", inspect.getdoc(value) or ""


def examples() -> list[tuple[str, str]]:
    """Return what stands indented in a docstring, as a paragraph of its own."""
    return [
        (name, dedent(paragraph))
        for name, text in docstrings()
        for paragraph in text.split("\n\n")
        if paragraph.startswith("    ")
    ]


def test_every_public_name_is_in_the_reference() -> None:
    assert set(fairlead.__all__) - NAMES == set()
    assert NAMES - set(fairlead.__all__) == {"fleet", "testing"}


@pytest.mark.parametrize("name, example", examples(), ids=lambda value: value.partition("\n")[0])
def test_an_example_in_a_docstring_runs(name: str, example: str, empty_folder: Path) -> None:
    app = fairlead.App({"main": "memory:", "us2": "memory:"})
    app.handler("receipt")(lambda job: None)
    app.tenant("shop", "alice").enqueue("receipt")

    def place_order(app: fairlead.App, user: str, order: int) -> None:
        app.tenant("shop", user).enqueue("receipt", order)

    known = {"fairlead": fairlead, "app": app, "users": ["alice", "bob"], "place_order": place_order}
    known["wf"] = create_autospec(fairlead.WorkflowContext, instance=True)
    exec(example, {**vars(fairlead), **vars(fairlead.testing), **known, "App": registered(app)})


def registered(app: fairlead.App) -> Any:
    """Return what makes an application with the handlers of `app`, as a module would have registered them."""

    def make(*args: Any, **options: Any) -> fairlead.App:
        made = fairlead.App(*args, **options)
        made.registry = app.registry
        return made

    return make


@pytest.fixture
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_there_are_examples_to_run() -> None:
    assert {name for name, _ in examples()} >= {"testing", "App.enqueue_many"}


@pytest.mark.parametrize("name", all_commands())
def test_the_example_in_a_command_s_help_can_be_typed(name: str) -> None:
    (example,) = re.findall(r"Example:\n  (fairlead .+)", str(all_commands()[name].epilog))
    assert wrong(example) is None
