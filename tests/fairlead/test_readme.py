"""The README's samples work as printed."""

from __future__ import annotations

import inspect
import os
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from threading import Timer
from typing import Any

import pytest

from fairlead import App, config
from fairlead.actors.handlers import handler_of
from fairlead.cli import main
from fairlead.loading import load_app, load_attribute
from fairlead.testing import drain
from tests.documents.transcripts import alike, commands, contains_alike
from tests.fairlead.shell import ROOT, run

README = (ROOT / "README.md").read_text(encoding="utf-8")
PYTHON, TOML, CONSOLE = (
    re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL) for language in ("python", "toml", "console")
)
PATIENCE_S = 90.0


@pytest.fixture
def shop(empty_directory: Path) -> Path:
    """The first sample under its printed name, unchanged."""
    assert PYTHON[0].startswith("# shop.py\n")
    assert len(PYTHON[0].splitlines()) <= 20
    (empty_directory / "shop.py").write_text(PYTHON[0], encoding="utf-8")
    return empty_directory


def test_the_first_sample_runs_as_printed(shop: Path) -> None:
    """One process places an order, and others run its receipt; both print what the README shows."""
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{shop}"}
    place, serve = commands(CONSOLE[0])
    pipes: dict[str, Any] = {"cwd": shop, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    typed = [sys.executable, *shlex.split(place.typed)[1:]]
    placed = subprocess.run(typed, env=env, check=True, timeout=PATIENCE_S, **pipes)
    assert alike(place.printed, placed.stdout)
    awaited, shown = serve.printed.splitlines(), ""
    with subprocess.Popen([sys.executable, "-m", *shlex.split(serve.typed)], env=env, **pipes) as process:
        assert process.stdout is not None
        late = Timer(PATIENCE_S, process.kill)  # Ends the output, too.
        late.start()
        for line in process.stdout:
            shown += line
            # The worker prints through Ray, perhaps before the command that started it goes on.
            awaited = [expected for expected in awaited if not contains_alike(expected, shown)]
            if not awaited:
                break
        late.cancel()
        process.send_signal(signal.SIGTERM)
        shown += process.stdout.read()
        assert (awaited, process.wait(PATIENCE_S)) == ([], 0), shown


def test_the_first_sample_can_be_tested_as_the_readme_says(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    app = load_app("shop:app")
    load_attribute("shop:place_order")("alice", 7)
    assert app.tenant("shop", "alice").transact(lambda tr: tr.get(("order", 7))) == b"paid"
    assert drain(app).completed == {"receipt": 1}
    assert capsys.readouterr().out == "receipt of order 7 to alice\n"
    app.close()
    del sys.modules["shop"]


def test_the_further_samples_are_applications(empty_directory: Path) -> None:
    for number, sample in enumerate(PYTHON[1:]):
        (empty_directory / f"fl_sample{number}.py").write_text(sample, encoding="utf-8")
        assert list(load_app(f"fl_sample{number}:app").registry)


def test_the_handlers_of_the_second_sample_do_what_their_comments_say(empty_directory: Path) -> None:
    (empty_directory / "fl_more.py").write_text(PYTHON[1], encoding="utf-8")
    app = load_app("fl_more:app")
    alice = app.tenant("shop", "alice")
    alice.enqueue("count")
    assert drain(app).completed == {"count": 1}
    assert alice.transact(lambda tr: tr.get(("orders",))) == (1).to_bytes(8, "little")
    assert alice.count() == {"thank": 1}
    app.close()


def test_the_workflow_is_started_and_let_go_on_as_the_readme_says(
    empty_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample = next(each for each in PYTHON if each.startswith("# trips.py\n"))
    (empty_directory / "fl_trips.py").write_text(sample, encoding="utf-8")
    (typed,) = re.findall(r"`(tr\.enqueue\(.book.*?)` starts", README)
    steps, signal, result = re.findall(r"^\| `fairlead (.*? trip-7.*?)` \|", README, re.MULTILINE)
    app = load_app("fl_trips:app")
    app.tenant("shop", "alice").transact(lambda tr: eval(typed, {"tr": tr}))
    monkeypatch.setenv("FAIRLEAD_APP", "fl_trips:app")
    assert drain(app).suspended == {"book": 1}
    assert "wait_for approved" in run(*shlex.split(steps)).out
    assert run(*shlex.split(signal)).code == 0
    assert drain(app).completed == {"book": 1}
    assert '"price": 120' in run(*shlex.split(result)).out
    app.close()


@pytest.mark.usefixtures("empty_directory")
def test_the_configuration_that_is_shown_is_valid() -> None:
    assert config.load(tomllib.loads(TOML[0]), environ={}).consumer.slots == 32


def test_every_command_that_the_readme_lists_exists_and_none_is_left_out() -> None:
    table = README.partition("## The command line")[2].partition("Settings come")[0]
    listed = {
        word for cell in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for word in re.findall(r"`([\w-]+)", cell)
    }
    assert listed == set(main.commands)


def test_the_command_is_where_the_readme_says_that_make_demo_leaves_it() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "`.venv/bin/fairlead demo --search lambda`" in README
    assert ".venv/bin/fairlead demo" in makefile


def test_the_import_that_the_readme_prints_for_tests_is_enough() -> None:
    """In a process of its own: this one has imported everything."""
    (line,) = re.findall(r"`(from fairlead\S* import drain)`", README)
    program = f"import fairlead\n{line}\napp = fairlead.App('memory:')\nassert drain(app).runs == 0"
    subprocess.run([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True)


def test_the_timeouts_that_the_readme_names_are_those_in_force() -> None:
    (hours,) = re.findall(r"`timeout`, (an hour) by default", README)
    assert (hours, inspect.signature(handler_of).parameters["timeout"].default) == ("an hour", 3600)
    assert re.search(r"transactional\s+handler\s+has\s+five\s+seconds", README)


@pytest.mark.usefixtures("empty_directory")
def test_the_variables_that_the_readme_sets_are_settings() -> None:
    variables = dict(re.findall(r"`(FAIRLEAD_\w+)=(\w+)`", README))
    assert variables
    loaded = config.load(environ=variables)
    assert set(variables) <= set(loaded.sources.values())


def test_an_id_is_bytes_in_python_and_hex_on_the_command_line(empty_directory: Path) -> None:
    assert re.search(r"bytes\s+in\s+Python,\s+hex\s+digits\s+on\s+the\s+command\s+line", README)
    app = App("embedded:data")
    made = app.tenant("shop", "alice").enqueue("receipt")
    assert isinstance(made.item_id, bytes)
    app.close()
    assert run("cancel", made.item_id.hex(), "--tenant", "shop", "alice", "--store", "embedded:data").code == 0
