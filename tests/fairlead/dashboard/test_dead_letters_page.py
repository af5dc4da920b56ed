"""The list of dead letters, page by page: what it says where a search stops, and its next page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from random import Random
from urllib.parse import parse_qs

import pytest

from fairlead import App, Job
from fairlead.dashboard import pages
from fairlead.queries import tenants
from fairlead.testing import ManualClock, drain
from tests.fairlead.dashboard.asking import open_site, read

OF_PAGE = 3


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> Iterator[App]:
    """An application whose handlers fail. A page holds 3 items, a transaction reads 4 dead letters, a page at 10."""
    monkeypatch.setattr(pages, "DEAD_LETTERS_PER_PAGE", OF_PAGE)
    monkeypatch.setattr(tenants, "SCANNED_MAX", 4)
    monkeypatch.setattr(tenants, "SCANNED_PER_PAGE_MAX", 10)
    made = App("memory:", clock=ManualClock(), random=Random(5))

    def fail(job: Job) -> None:
        raise ValueError("no")

    for kind in ("mail", "index"):
        made.handler(kind, permanent=(ValueError,))(fail)
    yield made
    made.close()


def dead_letter(app: App, kind: str, count: int) -> None:
    for _ in range(count):
        app.tenant("shop", "alice").enqueue(kind)
    drain(app, raise_errors=False)
    assert isinstance(app.clock, ManualClock)
    app.clock.advance(0.000001)


def walked(app: App, **query: str) -> list[str]:
    """Return all pages, from the first to the last."""
    site = open_site(app)
    texts = [read(site, "/dead-letters/items", query).text]
    while earlier := re.search(r'href="/dead-letters/items\?([^"]*)">Earlier ones', texts[-1]):
        said = dict(pair.split("=", 1) for pair in unescape(earlier[1]).replace("%3A", ":").split("&"))
        texts.append(read(site, "/dead-letters/items", said).text)
    return texts


def rows(text: str) -> int:
    return text.count('<article class="card"')


@pytest.mark.parametrize("count", [1, OF_PAGE, OF_PAGE + 1, 2 * OF_PAGE])
def test_no_page_has_an_empty_next_page(app: App, count: int) -> None:
    dead_letter(app, "mail", count)
    found = walked(app)
    assert sum(map(rows, found)) == count
    assert len(found) == -(-count // OF_PAGE)
    assert all("Nothing" not in text for text in found)


def test_a_match_behind_many_others_is_shown_with_its_buttons(app: App) -> None:
    dead_letter(app, "mail", 2)
    dead_letter(app, "index", 7)
    (found,) = walked(app, kind="mail")
    assert rows(found) == 2
    assert "Retry them" in found


def test_a_page_that_stopped_its_search_says_so_and_has_a_next_page_and_buttons(app: App) -> None:
    dead_letter(app, "mail", 2)
    dead_letter(app, "index", 15)
    first, second = walked(app, kind="mail")
    assert (rows(first), rows(second)) == (0, 2)
    assert "0 that match, the latest first, of 10 dead letters that were read. There may be earlier ones." in first
    assert "Retry them" in first
    assert "Nothing" not in first


def test_where_nothing_matches_the_last_page_says_so(app: App) -> None:
    assert "No dead letters." in walked(app)[0]
    dead_letter(app, "mail", 4)
    (text,) = walked(app, kind="index")
    assert "No dead letters match." in text
    assert "Retry them" not in text
    dead_letter(app, "mail", 8)
    assert "No earlier dead letters match." in walked(app, kind="index")[-1]


def test_after_a_retry_the_page_shows_the_same_matches(app: App) -> None:
    dead_letter(app, "mail", 1)
    text = read(open_site(app), "/dead-letters/items", {"kind": "mail"}).text
    (retries,) = re.findall(r'href="/do/retry\?([^"]*[;&]id=[^"]*)"', text)
    assert parse_qs(unescape(retries))["back"] == ["/dead-letters/items?kind=mail"]


def test_of_local_items_those_of_the_shard_that_is_shown_are_retried(tmp_path: Path) -> None:
    """Before, the page showed one shard, and its button acted on all."""
    app = App({name: f"embedded:{tmp_path / name}" for name in ("eu", "us")})
    app.handler("mail", permanent=(ValueError,))(refuse)
    app.enqueue_everywhere("mail")
    drain(app, raise_errors=False)
    site = open_site(app)
    text = read(site, "/dead-letters/items", {"local": "mail", "shard": "eu"}).text
    assert rows(text) == 1
    (retries,) = re.findall(r'href="/do/retry\?([^"]*[;&]many=1[^"]*)"', text)
    asked = read(site, "/do/retry", {name: value for name, (value,) in parse_qs(unescape(retries)).items()}).text
    assert "1 item goes back into its queue" in asked
    app.close()


def refuse(job: Job) -> None:
    raise ValueError("no")
