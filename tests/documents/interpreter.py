"""The process in which a page's own Python runs, from outside; `session.py` is the inside."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.documents import session
from tests.documents.blocks import Block
from tests.documents.fleet_terminal import PATIENCE_S


class StoryBroken(AssertionError):
    """A block does not do what its page says."""


class Interpreter:
    """One process, one namespace; block after block."""

    def __init__(self, name: str, folder: Path, env: dict[str, str]) -> None:
        self._name = name
        receive, send = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, str(session.__file__), str(send)],
            cwd=folder,
            env=env,
            stdin=subprocess.PIPE,
            text=True,
            pass_fds=(send,),
        )
        os.close(send)
        self._answers = os.fdopen(receive, encoding="utf-8")

    def run(self, block: Block, *, prompts: bool) -> None:
        """Run a block.

        Raises:
          StoryBroken: it raised something, or printed something else than the page says.
        """
        assert self._process.stdin is not None
        asked = {"file": self._name, "line": block.line, "text": block.text, "prompts": prompts}
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        answer = self._answers.readline()
        if not answer:
            raise StoryBroken(f"the page's interpreter ended with {self._process.wait(PATIENCE_S)}")
        if wrong := json.loads(answer):
            raise StoryBroken(wrong)

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE_S)
        self._answers.close()
