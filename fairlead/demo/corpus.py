"""The input: the source files of the running Python's standard library, and their words."""

import re
import sysconfig
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

CHUNK_BYTES = 65_536
LEFT_OUT = {"site-packages", "dist-packages", "test", "tests", "__pycache__"}

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{2,63}")


class SourceFile(NamedTuple):
    """One file: its tenant, its path below the library, and its text as UTF-8."""

    tenant: str
    path: str
    text: bytes

    def chunks(self) -> list[bytes]:
        """Return the text in pieces of 64 kB."""
        return [self.text[begin : begin + CHUNK_BYTES] for begin in range(0, len(self.text), CHUNK_BYTES)] or [b""]


def read_library(root: Path | None = None) -> Iterator[SourceFile]:
    """Yield the library's source files, tenant by tenant; a file that is not UTF-8 is read as Latin-1."""
    root = root or Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(root.rglob("*.py")):
        place = path.relative_to(root)
        if LEFT_OUT.isdisjoint(place.parts):
            raw = path.read_bytes()
            try:
                text = raw.decode()
            except UnicodeDecodeError:
                text = raw.decode("latin-1")
            yield SourceFile(place.parts[0].removesuffix(".py"), str(place), text.encode())


def count_words(text: bytes) -> Counter[str]:
    """Return how often each word is in a text. A word has 3 to 64 letters, digits and underscores, in lower case."""
    return Counter(word.lower() for word in _WORD.findall(text.decode()))
