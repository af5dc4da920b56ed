"""The dashboard answers every request, of any content and on any store, and has no other effect.

The requests are drawn from a seed, `FAIRLEAD_FUZZ_SEED` and the number of the case, and go into the site directly, so
requests that a server would refuse reach it, too. tests/zones has the same for the decoders of records.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from random import Random
from typing import Any
from urllib.parse import quote

import pytest

from fairlead import App, Job, PermanentError, WorkflowContext
from fairlead.dashboard import site as sites
from fairlead.dashboard.access import Access
from fairlead.dashboard.actions import action_of
from fairlead.dashboard.middleware import HEADERS
from fairlead.dashboard.pages import PAGES, Query
from fairlead.dashboard.site import Site
from fairlead.tenant_database import checked_id
from fairlead.testing import ManualClock, drain
from fairlead.zones import engines
from fairlead.zones.errors import QueueError
from fairlead.zones.keyspace import META_KEY, ROOT_RANGE
from tests.fairlead.dashboard.asking import HOST, Answer, answered, open_site, read
from tests.zones.corrupting import damage, damage_of
from tests.zones.test_corrupt_records import cases, damaged, each

TOKEN = "a token of some length"
MARKUP = "<script>said()</script>"
ACTIONS = ["retry", "discard", "cancel", "pause", "resume", "cancel-move"]
PATHS = [*PAGES, "/login", "/logout", "/static/fairlead.js", "/static/../access.py", "/static/%2e%2e/x", "//elsewhere"]
PATHS += [f"/do/{what}" for what in ACTIONS] + [f"/live{path}" for path in PAGES]
KEYS = [
    "app",
    "user",
    "zone",
    "id",
    "kind",
    "shard",
    "error",
    "before",
    "sort",
    "local",
    "many",
    "q",
    "did",
    "back",
    "from",
    "signature",
    "find",
    "page",
    "path",
    "state",
]
VALUES = [
    "", "shop", "alice", "queue", "mail", "main", "order-7", "1", "time", "/tenants", "//elsewhere", "\0", "ä" * 200,
    MARKUP, "a" * 97, "0" * 32, "9" * 40, "-1", "1e309", "%", "\u202e", "main:5", "2026-11-01", "null",
    "waits for a signal", "dead letter",
]  # fmt: skip
ITEM = {"zone": "queue", "id": "0" * 32}
SAID = [  # The other parameters of a request: none, a tenant's item, its workflow, a local item, many.
    {},
    {"app": "shop", "user": "alice", "q": "order-7", **ITEM},
    {"app": "shop", "user": "alice", "zone": "queue", "id": checked_id("flow-7").hex()},
    {"local": "mail", "shard": "main", **ITEM},
    {"many": "1"},
]
READERS: dict[str, Callable[[App, Query], Any]] = {path: page.show for path, page in PAGES.items()}
READERS |= {f"/do/{what}": lambda app, query, what=what: action_of(app, what, query) for what in ACTIONS}  # type: ignore[misc]
METHODS = ["GET"] * 16 + ["POST"] * 12 + ["HEAD", "PUT", "DELETE", "OPTIONS", "TRACE", "get", ""]
# Done, elsewhere, refused (in which way), not there, not so, too long, not by that name, the store cannot be read.
ANSWERS = {200, 303, 400, 401, 403, 404, 405, 413, 421, 503}


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> Iterator[App]:
    """An application with some of everything, whose names and payloads are full of markup."""
    monkeypatch.setattr(sites, "LOGIN_S", 0)
    monkeypatch.setattr(sites, "LIVE_S", 0)
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    made = App("memory:", clock=ManualClock(), random=Random(5))

    @made.handler("mail")
    def mail(job: Job) -> None:
        raise PermanentError(MARKUP)

    @made.workflow("flow", permanent=(ZeroDivisionError,))
    def flow(wf: WorkflowContext) -> None:
        wf.step(lambda tr: {MARKUP: MARKUP}, name=MARKUP, undo=lambda tr: 1 // 0)
        wf.enqueue("never", MARKUP)
        if wf.wait_for(MARKUP, timeout=60) is not None:
            raise PermanentError(MARKUP)

    for user in ("alice", MARKUP):
        tenant = made.tenant("shop", user)
        tenant.enqueue("flow", item_id="flow-7")
        tenant.enqueue("flow", item_id="flow-8")
        tenant.enqueue("mail", {MARKUP: MARKUP}, item_id="order-7")
        tenant.enqueue(MARKUP, MARKUP, delay=60, item_id=MARKUP)
    drain(made, raise_errors=False, replays=False)
    made.tenant("shop", "alice").signal("flow-8", MARKUP)
    drain(made, raise_errors=False, replays=False)
    made.tenant("shop", "alice").enqueue("mail", 5, item_id="order-7")
    made.control.pause_tenant("shop", MARKUP)
    made.control.limit_kind("mail", max_running=3)
    yield made
    made.close()


def drawn(random: Random, values: list[str]) -> str:
    """Return a plausible value, or a random one."""
    if random.random() < 0.8:
        return random.choice(values)
    return damaged(random.choice(values).encode(), random)[:300].decode("latin-1")


def query_of(random: Random) -> str:
    pairs = [(drawn(random, KEYS), drawn(random, VALUES)) for _ in range(random.randrange(6))]
    return "&".join(f"{quote(key)}={quote(value)}" for key, value in pairs)


def headers_of(random: Random) -> list[tuple[bytes, bytes]]:
    """Return headers that are often valid, so that requests pass the access control."""
    headers = {
        "host": random.choice([HOST] * 40 + ["localhost", "elsewhere.example", "[::1]:8321", "[", ":", ""]),
        "authorization": random.choice([f"Bearer {TOKEN}"] * 12 + ["", "Bearer", "Basic x", "Bearer ä", "Bearer \0"]),
        "sec-fetch-site": random.choice(["same-origin"] * 8 + ["cross-site", ""]),
        "origin": random.choice([f"http://{HOST}"] * 8 + ["null", "http://elsewhere.example", "://"]),
        "cookie": random.choice(["", "fairlead=", "fairlead=1.x.y", "fairlead=9999999999999999.YQ==.00", ";;=;", '"']),
        "content-length": random.choice(["5"] * 40 + ["-1", "x", "9" * 30, ""]),
    }
    kept = [(name, value) for name, value in headers.items() if random.random() < 0.97]
    if random.random() < 0.05:
        kept.append((random.choice(list(headers)), drawn(random, VALUES)))
    return [(name.encode(), value.encode("latin-1", errors="replace")) for name, value in kept]


def ask(site: Any, random: Random, csrf_token: str) -> Answer:
    """Send a random request, and return the response."""
    path = drawn(random, PATHS)
    body = query_of(random).encode() if random.random() < 0.8 else damaged(b"csrf_token=x&id=1", random)
    if random.random() < 0.7:
        body += b"&csrf_token=" + csrf_token.encode()
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http",
        "method": random.choice(METHODS),
        "path": path, "raw_path": quote(path).encode(), "root_path": "", "query_string": query_of(random).encode(),
        "headers": headers_of(random), "client": ("127.0.0.1", 5), "server": ("127.0.0.1", 8321),
    }  # fmt: skip
    return asyncio.run(answered(site, scope, body))


def site_of(app: App, random: Random) -> tuple[Any, str]:
    """Return a site, and the CSRF token of its forms."""
    token = random.choice([None, TOKEN])
    access = Access(
        token=token,
        secret=b"s" * 32,
        host_names=frozenset(),
        read_only=random.random() < 0.2,
        anonymous_name="somebody",
    )
    return Site(app, access, cookie_name="fairlead").asgi(), access.csrf_token


def check(answer: Answer) -> None:
    assert answer.status in ANSWERS, answer
    assert HEADERS.items() <= answer.headers.items() | {("cache-control", HEADERS["cache-control"])}
    assert MARKUP not in answer.text or "javascript" in answer.headers.get("content-type", "")
    assert not answer.headers.get("location", "/").startswith(("//", "http"))


class Noted(dict[str, str]):
    """A query that records which parameters are read."""

    def __init__(self, said: dict[str, str]) -> None:
        super().__init__(said)
        self.keys_read: set[str] = set()

    def __getitem__(self, key: str) -> str:
        self.keys_read.add(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self.keys_read.add(key)
        return super().get(key, default)


@pytest.mark.parametrize("path", READERS)
def test_each_value_of_each_parameter_is_answered(app: App, path: str) -> None:
    """Every parameter that a page or a question reads, once with every value. Random requests reach these by chance."""
    site = open_site(app)
    for said in SAID:
        query = Noted(said)
        with suppress(QueueError):
            READERS[path](app, query)
        for key in sorted(query.keys_read):
            for value in VALUES:
                asked = {**said, key: value}
                check(read(site, path, asked))
                if path in PAGES:
                    sent = read(site, f"/live{path}", asked)
                    check(sent)
                    assert sent.status == 200, "what cannot be shown is told in the page's part"


@cases(400)
def test_every_fuzzed_request_is_answered(app: App, count: int) -> None:
    def case(random: Random) -> None:
        site, csrf_token = site_of(app, random)
        check(ask(site, random, csrf_token))

    each(count, 900, case)


@cases(100)
def test_pages_of_a_damaged_store_are_shown(app: App, count: int) -> None:
    """Each case damages a few pairs of the store, requests some pages, and restores the pairs."""
    db = app.shards["main"].db
    whole = engines.transact(db, lambda tr: list(tr.get_range(*ROOT_RANGE)))
    pairs = [(row.key, row.value) for row in whole if row.key != META_KEY]

    def restore(tr: Any) -> None:
        tr.clear_range(*ROOT_RANGE)
        for row in whole:
            tr.set(row.key, row.value)

    def case(random: Random) -> None:
        damage(db, [damage_of(random.choice(pairs), random) for _ in range(random.randrange(1, 6))])
        site, csrf_token = site_of(app, random)
        for _ in range(6):
            check(ask(site, random, csrf_token))
        engines.transact(db, restore)

    each(count, 901, case)
