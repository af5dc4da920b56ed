"""The Python of one page, in a process of its own: block after block in one namespace, as in an interpreter.

Run as `python session.py FD`: reads one JSON object per line from standard input (`file`, `line`, `text`, `prompts`),
and answers each with one line of JSON on the descriptor FD: what went wrong, or null. With `prompts` the block is a
session with the interpreter, and what it prints is compared.
"""

import doctest
import io
import json
import os
import sys
import traceback
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def main() -> None:
    """Run blocks until there are no more."""
    sys.path.insert(0, str(Path.cwd()))
    namespace: dict[str, Any] = {"__name__": "__main__"}
    with os.fdopen(int(sys.argv[1]), "w", encoding="utf-8") as answers:
        for line in sys.stdin:
            block = json.loads(line)
            answers.write(json.dumps(wrong(block, namespace)) + "\n")
            answers.flush()


def wrong(block: dict[str, Any], namespace: dict[str, Any]) -> str | None:
    """Run a block; return what it raised, or printed instead of what the page says."""
    if block["prompts"]:
        said = io.StringIO()
        examples = doctest.DocTestParser().get_doctest(
            block["text"], namespace, block["file"], block["file"], block["line"]
        )
        if not examples.examples:
            return "no line begins with >>>"
        failed, _ = doctest.DocTestRunner(optionflags=FLAGS).run(examples, out=said.write, clear_globs=False)
        namespace.update(examples.globs)
        return said.getvalue() if failed else None
    try:
        # The lines before it are empty, so that a traceback names the line of the page.
        code = compile("\n" * block["line"] + block["text"], block["file"], "exec")
        with redirect_stdout(sys.stderr):
            exec(code, namespace)
    except BaseException:  # noqa: BLE001 - a page's code may raise anything, which the page's test reports
        return traceback.format_exc()
    return None


if __name__ == "__main__":
    main()
