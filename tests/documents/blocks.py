"""The pages of the documentation, and all code blocks in them.

A block is fenced by three backticks, and has its language and perhaps its file name:

    ```python title="shop.py"

If a block cannot be run by a test, the line above it says so, and why. `test_pages.py` lists all such blocks:

    <!-- not run: needs machines to rent -->

If another test runs a block, because its page alone cannot, the line above it names that test:

    <!-- run by tests/contract/test_embedded_write_lock.py -->
"""

import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import NamedTuple

from tests.style.sources import ROOT

DOCS = ROOT / "docs"
_FENCE = re.compile(r'(?P<indent> *)```(?P<language>\w*)(?: title="(?P<title>[^"]+)")?')
_NOT_RUN = re.compile(r"<!-- not run: (?P<reason>.+) -->")
_RUN_BY = re.compile(r"<!-- run by (?P<test>tests/[\w/]+\.py) -->")
_FILE_COMMENT = re.compile(r"# (\w+\.py)\n")


class PageBroken(Exception):
    """A page holds text that looks like code and cannot be parsed as a block."""


class Block(NamedTuple):
    """A code block: the line of its fence, its language and title, and its text."""

    line: int
    language: str
    title: str | None
    text: str
    not_run: str | None = None
    run_by: str | None = None

    @property
    def file(self) -> str | None:
        """The name of its file, from its title or from a comment in its first line; None: it is not a file."""
        if self.title is not None and re.fullmatch(r"[\w./-]+\.\w+", self.title):
            return self.title
        comment = _FILE_COMMENT.match(self.text)
        return comment[1] if comment else None


def pages() -> list[Path]:
    """Return every page of the documentation."""
    return [ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]


def name_of(page: Path) -> str:
    """Return a page's path from the root of the repository."""
    return page.relative_to(ROOT).as_posix()


def blocks_of(page: Path) -> list[Block]:
    """Return the code blocks of a page; see `blocks`."""
    try:
        return blocks(page.read_text(encoding="utf-8"))
    except PageBroken as error:
        error.add_note(f"in {name_of(page)}")
        raise


def blocks(text: str) -> list[Block]:
    """Return the code blocks of a page, in order.

    Raises:
      PageBroken: a fence has something else than a language and a title, or does not end; or code is indented.
    """
    return list(_blocks(text.splitlines()))


def _blocks(lines: list[str]) -> Iterator[Block]:
    number, listed = 0, False
    while number < len(lines):
        line = lines[number]
        if re.match(r"\s*(```|~~~)", line):
            block, number = _fenced(lines, number)
            yield block
            continue
        if line.strip():
            listed = bool(re.match(r"\s*([-*]|\d+\.) ", line)) or (listed and line.startswith(" "))
        if line.startswith("    ") and not listed and (number == 0 or not lines[number - 1].strip()):
            raise PageBroken(f"line {number + 1} is indented code without a language: fence it")
        number += 1


def _fenced(lines: list[str], start: int) -> tuple[Block, int]:
    """Return the block that begins at `start`, and the line after it."""
    fence = _FENCE.fullmatch(lines[start].rstrip())
    if fence is None:
        raise PageBroken(f"line {start + 1}: a fence has a language and perhaps a title, and nothing else")
    closing = fence["indent"] + "```"
    end = next((at for at in range(start + 1, len(lines)) if lines[at].rstrip() == closing), None)
    if end is None:
        raise PageBroken(f"line {start + 1}: the block does not end")
    before = lines[start - 1].strip() if start else ""
    not_run, run_by = _NOT_RUN.fullmatch(before), _RUN_BY.fullmatch(before)
    if before.startswith("<!--") and not (not_run or run_by):
        raise PageBroken(f"line {start}: a comment above a block is `not run: REASON` or `run by tests/...`")
    text = dedent("\n".join(lines[start + 1 : end])) + "\n"
    reason, test = not_run and not_run["reason"], run_by and run_by["test"]
    return Block(start + 1, fence["language"], fence["title"], text, reason, test), end + 1
