"""Runs a page: its blocks in order, in one new folder, as a reader would run them.

| language | what happens to a block |
|---|---|
| python | with a file's name (a title, or a comment in its first line): written there; else run in the page's process |
| pycon | run there too, line by line; its output is compared (doctest) |
| console | typed, and its output is compared; a server runs on until the page shows ^C |
| text, titled with a terminal | the further output of the running fleet |
| sql | written to the file of its title, which a command runs |
| toml | loaded as a configuration; the name `fairlead.toml` writes it for the following blocks |
| yaml | must be in cluster.yaml, line by line |
| ini | a unit of systemd, whose commands must be valid |
"""

import configparser
import os
import re
import shlex
import socket
import subprocess
import sys
import time
import tomllib
from collections import defaultdict
from pathlib import Path

import yaml

from fairlead import config
from fairlead.cli.dashboard import PORT
from tests.documents.blocks import Block
from tests.documents.fleet_terminal import PATIENCE_S, FleetTerminal
from tests.documents.interpreter import Interpreter, StoryBroken
from tests.documents.transcripts import Command, alike, commands
from tests.fairlead.shell import ROOT
from tests.fairlead.shell import run as run_command
from tests.test_docs import wrong

IN_A_PROCESS = ("fairlead run ", "fairlead simulate ", "fairlead demo")  # What starts processes, or reads the clock.

SERVING = ("fairlead run ", "fairlead dashboard ", "uvicorn ", "gunicorn ", "celery ")

WEB = ("uvicorn ", "gunicorn ", "curl ")  # Their ports may be taken here: each stands for a free one.
WEB_PORT = re.compile(r"\b80\d\d\b")

NOBODY_LISTENS = 7  # What curl exits with: a server says that it has started a moment before it listens.

LOOKING = ("fairlead peek ", "fairlead why ", "fairlead status ", "fairlead dead-letters list ")


class Story:
    """One page that is being run, in a folder that is the current one."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder
        self._session: Interpreter | None = None
        self._terminals: list[FleetTerminal] = []
        self._ports: defaultdict[str, str] = defaultdict(_free_port)
        self._runners = {
            "python": self._python,
            "pycon": self._pycon,
            "console": self._console,
            "text": self._text,
            "sql": self._sql,
            "toml": self._toml,
            "yaml": self._yaml,
            "ini": self._ini,
        }
        _make_command(folder.parent / "bin")
        python = Path(sys.executable).parent
        self._env = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "FAIRLEAD_"))},
            "PATH": f"{folder.parent / 'bin'}:{python}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            # A file that is replaced within a second must not be taken for the old one.
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def run(self, block: Block) -> None:
        """Run a block.

        Raises:
          StoryBroken: it does not do what the page says, or its language is unknown.
        """
        runner = self._runners.get(block.language)
        if runner is None:
            raise StoryBroken(f"{self.name}:{block.line}: a block of {block.language!r} cannot be run")
        try:
            runner(block)
        except Exception as error:
            error.add_note(f"in the block at {self.name}:{block.line}")
            raise

    def close(self) -> None:
        """End what the page has started, and unload its modules."""
        for terminal in self._terminals:
            terminal.close()
        self._end_session()
        self._forget_modules()

    def _python(self, block: Block) -> None:
        if block.file is None:
            self._interpreter().run(block, prompts=False)
            return
        compile(block.text, block.file, "exec")
        path = self.folder / block.file
        if path.exists():  # the interpreter may have imported the old one: start a new one, as a reader must
            self._end_session()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text, encoding="utf-8")
        self._forget_modules()

    def _pycon(self, block: Block) -> None:
        self._interpreter().run(block, prompts=True)

    def _console(self, block: Block) -> None:
        for printed in commands(block.text):
            command = self._with_free_ports(printed)
            if command.typed.startswith(SERVING):
                self._serve(command)
                continue
            self._type(command)

    def _with_free_ports(self, command: Command) -> Command:
        if not command.typed.startswith(WEB):
            return command
        typed, printed = (
            WEB_PORT.sub(lambda found: self._ports[found[0]], text) for text in (command.typed, command.printed)
        )
        return command._replace(typed=typed, printed=printed)

    def _serve(self, command: Command) -> None:
        """Start a server. A dashboard gets any free port: its own may be in use."""
        typed, printed = command.typed, command.printed
        if typed.startswith("fairlead dashboard "):
            typed, printed = f"{typed} --port 0", printed.replace(f":{PORT}/", ":.../")
        self._terminals.append(FleetTerminal(typed, self.folder, self._env))
        self._terminals[-1].show(printed)

    def _text(self, block: Block) -> None:
        running = [each for each in self._terminals if each.runs]
        if "terminal" not in (block.title or "") or not running:
            raise StoryBroken("a block of text is the output of a running fleet: give it a title with its terminal")
        running[-1].show(block.text)

    def _sql(self, block: Block) -> None:
        if block.title is None:
            raise StoryBroken("a block of SQL is a file that a command runs: give it a title with its name")
        (self.folder / block.title).write_text(block.text, encoding="utf-8")

    def _toml(self, block: Block) -> None:
        config.load(tomllib.loads(block.text), environ={})
        if block.title is not None:
            (self.folder / block.title).write_text(block.text, encoding="utf-8")

    def _yaml(self, block: Block) -> None:
        whole = (ROOT / "cluster.yaml").read_text(encoding="utf-8")
        missing = [line for line in block.text.splitlines() if line.strip() and line.strip() not in whole]
        part = yaml.safe_load(block.text)
        if missing or not part or not _is_part(part, yaml.safe_load(whole)):
            raise StoryBroken(f"cluster.yaml does not say {missing or part}")

    def _ini(self, block: Block) -> None:
        unit = configparser.ConfigParser(interpolation=None)
        unit.read_string(block.text)
        program, _, arguments = unit["Service"]["ExecStart"].partition(" ")
        typed = f"{Path(program).name} {arguments}"
        if said := wrong(typed):
            raise StoryBroken(f"{typed}: {said}")

    def _type(self, command: Command) -> None:
        """Type a command; one that asks a server is repeated until it prints what the page prints.

        Those are commands that show a fleet's state, and curl until the server listens.
        """
        until = time.monotonic() + PATIENCE_S
        while True:
            code, shown = self._typed(command)
            if alike(command.printed, shown) and code == command.exit_code:
                return
            looks = command.typed.startswith(LOOKING) or (command.typed.startswith("curl ") and code == NOBODY_LISTENS)
            looks = looks and any(each.runs for each in self._terminals)
            if not looks or time.monotonic() > until:
                raise StoryBroken(f"{command.typed} ended with {code} and printed\n{shown}\nand not\n{command.printed}")
            time.sleep(0.05)

    def _typed(self, command: Command) -> tuple[int, str]:
        """Type a command; a fairlead command that starts no process runs in this process, which takes milliseconds."""
        ours = command.typed.startswith("fairlead ") and not command.typed.startswith(IN_A_PROCESS)
        if ours and not set(command.typed) & set("|<>&;$`"):
            answer = run_command(*shlex.split(command.typed, comments=True)[1:])
            return answer.code, answer.out + answer.err
        ended = subprocess.run(
            ["bash", "-c", command.typed],
            cwd=self.folder,
            env=self._env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        return ended.returncode, ended.stdout

    def _interpreter(self) -> Interpreter:
        if self._session is None:
            self._session = Interpreter(self.name, self.folder, self._env)
        return self._session

    def _end_session(self) -> None:
        if self._session is not None:
            self._session.close()
        self._session = None

    def _forget_modules(self) -> None:
        """Unload the modules that commands have imported from the folder in this process."""
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", None)).startswith(f"{self.folder}/"):
                del sys.modules[name]


def _free_port() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


def _make_command(folder: Path) -> None:
    """Make the command `fairlead`, as an installation would."""
    folder.mkdir(exist_ok=True)
    command = folder / "fairlead"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m fairlead "$@"\n', encoding="utf-8")
    command.chmod(0o755)


def _is_part(part: object, whole: object) -> bool:
    """Say whether everything in `part` is somewhere in `whole`."""
    if isinstance(part, dict) and isinstance(whole, dict):
        return all(key in whole and _is_part(value, whole[key]) for key, value in part.items())
    if isinstance(part, list) and isinstance(whole, list):
        return all(any(_is_part(each, other) for other in whole) for each in part)
    return part == whole
