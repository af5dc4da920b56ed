"""Requests that go straight into the site, without a server or a socket."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple
from urllib.parse import urlencode

from fairlead import App
from fairlead.dashboard.access import Access
from fairlead.dashboard.site import Site

HOST = "127.0.0.1:8321"


class Answer(NamedTuple):
    """The response of the site."""

    status: int
    headers: dict[str, str]
    text: str


def open_site(app: App) -> Any:
    """Return a site without a login, on which every visitor may act."""
    access = Access(token=None, secret=b"s" * 32, host_names=frozenset(), read_only=False, anonymous_name="somebody")
    return Site(app, access, cookie_name="fairlead").asgi()


def read(site: Any, path: str, query: dict[str, str]) -> Answer:
    """Request a page with valid headers."""
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http", "method": "GET",
        "path": path, "raw_path": path.encode(), "root_path": "", "query_string": urlencode(query).encode(),
        "headers": [(b"host", HOST.encode())], "client": ("127.0.0.1", 5), "server": ("127.0.0.1", 8321),
    }  # fmt: skip
    return asyncio.run(answered(site, scope, b""))


async def answered(site: Any, scope: dict[str, Any], body: bytes) -> Answer:
    came = [{"type": "http.request", "body": body, "more_body": False}]
    sent: list[Any] = []

    async def receive() -> Any:
        return came.pop() if came else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    await site(scope, receive, send)
    (start,) = [message for message in sent if message["type"] == "http.response.start"]
    text = b"".join(message.get("body", b"") for message in sent)
    headers = {name.decode(): value.decode("latin-1") for name, value in start["headers"]}
    return Answer(start["status"], headers, text.decode())
