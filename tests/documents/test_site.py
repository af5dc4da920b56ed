"""The documentation site can be built: no broken link or reference, no missing page, nothing from other hosts."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.documents.blocks import DOCS
from tests.style.sources import ROOT


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` builds it."""
    folder = tmp_path_factory.mktemp("site")
    assert build(ROOT / "mkdocs.yml", folder) == []
    return folder


def build(config: Path, folder: Path) -> list[str]:
    """Build a site; return its warnings, if it was refused."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(config)]
    ended = subprocess.run(
        [*command, "--site-dir", str(folder)], cwd=ROOT, capture_output=True, text=True, timeout=100, check=False
    )
    return [] if ended.returncode == 0 else ended.stderr.splitlines()


def pages(site: Path) -> Iterator[tuple[str, str]]:
    """Yield each built page with its text."""
    for page in sorted(site.rglob("*.html")):
        yield page.relative_to(site).as_posix(), page.read_text(encoding="utf-8")


def test_every_page_is_built(site: Path) -> None:
    built = {name for name, _ in pages(site)}
    sources = [page.relative_to(DOCS).with_suffix(".html").as_posix() for page in DOCS.rglob("*.md")]
    assert {re.sub(r"README\.html$", "index.html", each) for each in sources} - built == set()


def test_no_page_fetches_anything_from_elsewhere(site: Path) -> None:
    """Fonts, scripts and styles come with the site: it can be read offline, and sends nothing about its readers."""
    tags = r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=[\"']?((?:https?:)?//[^\"'\s>]+)"
    fetched = {(name, url) for name, text in pages(site) for url in re.findall(tags, text)}
    assert {(name, url) for name, url in fetched if "canonical" not in url} == set()
    styles = "".join(each.read_text(encoding="utf-8") for each in site.rglob("*.css"))
    assert re.findall(r"url\([\"']?(?:https?:)?//", styles) == []


def test_the_reference_shows_docstrings_and_the_help_of_commands(site: Path) -> None:
    texts = dict(pages(site))
    assert "Enqueue one item in a transaction of its own" in texts["reference/tenants.html"]
    assert "handlers at once" in texts["reference/configuration.html"].lower()
    assert "fairlead set-weight 3 --tenant shop/alice" in texts["reference/command-line.html"]


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "index.md").write_text("[nowhere](nowhere.md), [none][fairlead.None]\n", encoding="utf-8")
    small = re.sub(r"^nav:\n(?:  .*\n)+", "", config, flags=re.MULTILINE)
    small = small.replace("docs_dir: docs", "docs_dir: pages").replace("hooks: [docs/site/command_line.py]\n", "")
    (tmp_path / "mkdocs.yml").write_text(small, encoding="utf-8")
    assert any("nowhere.md" in line for line in build(tmp_path / "mkdocs.yml", tmp_path / "site"))
