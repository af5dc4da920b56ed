"""The output that a page prints for a command, and whether the command printed it.

    $ fairlead enqueue receipt '{"order": 7}' --tenant shop/alice
    enqueued ... on shard main

`...` stands for text that varies: any text within a line, or any lines on a line of its own. The width of a table's
columns is not compared. A comment gives the exit code of a command that must fail: `# exits with 4`.
"""

import re
from typing import NamedTuple

ANY_LINES = r"(?:.*\n)*?"


class Command(NamedTuple):
    """A command as it is typed, its exit code, and what it prints."""

    typed: str
    exit_code: int
    printed: str


def commands(block: str) -> list[Command]:
    """Return the commands of a console block with what they print.

    Raises:
      ValueError: the block does not begin with a command.
    """
    found: list[Command] = []
    lines = block.splitlines()
    if not lines or not lines[0].startswith("$ "):
        raise ValueError("a console block begins with `$ ` and a command")
    for line in lines:
        if line.startswith("$ "):
            found.append(Command(line.removeprefix("$ "), 0, ""))
        else:
            found[-1] = found[-1]._replace(printed=f"{found[-1].printed}{line}\n")
    return [each._replace(exit_code=_exit_code(each.typed)) for each in found]


def _exit_code(typed: str) -> int:
    said = re.search(r"# exits with (\d+)", typed)
    return int(said[1]) if said else 0


def pattern(printed: str, line_end: str = r"\n") -> str:
    """Return the regular expression for the output that a page prints."""
    return "".join(
        ANY_LINES if line.strip() == "..." else re.escape(line).replace(r"\.\.\.", ".*?") + line_end
        for line in tidy(printed).splitlines()
    )


def alike(printed: str, shown: str) -> bool:
    """Say whether the whole output of a command is what the page prints."""
    return re.fullmatch(pattern(printed), tidy(shown)) is not None


def begins_alike(printed: str, shown: str) -> re.Match[str] | None:
    """Return the match of what the page prints in the output of a running command; None: not complete yet."""
    return re.match(_of_threads(printed) + r"(?:^|(?<=\n))", tidy(shown))


def ends_alike(printed: str, shown: str) -> bool:
    """Say whether the rest of the output is what the page prints."""
    return re.fullmatch(_of_threads(printed), tidy(shown)) is not None


def contains_alike(printed: str, shown: str) -> bool:
    """Say whether threads, in any order, have printed one line of a page among others."""
    return re.search(pattern(printed, line_end=""), tidy(shown)) is not None


def _of_threads(printed: str) -> str:
    """Return the pattern for output of threads, which write a line and its end separately, so that two may mix."""
    return r"\n*" + pattern(printed, line_end=r"\n*")


def tidy(shown: str) -> str:
    """Return output with single blanks, single rule characters, and an end of its last line."""
    return "".join(re.sub(r" {2,}", " ", re.sub("─+", "─", line)).rstrip() + "\n" for line in shown.splitlines())
