"""A dashboard in a process of its own, as the command starts it; and requests made by hand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from typing import IO, NamedTuple
from urllib.parse import urlencode, urlsplit

from fairlead import App, Job
from fairlead.testing import drain
from tests.fairlead.shell import ROOT

TOKEN = "a token of some length"
ERRORS: dict[str, str] = {}  # The text with which the item of this name fails.


class Answer(NamedTuple):
    """The response to a request; `headers` by lower-case name."""

    status: int
    text: str
    headers: dict[str, str]


class Server(NamedTuple):
    """A dashboard that listens at `url`."""

    url: str

    @property
    def address(self) -> str:
        """The host and port."""
        return urlsplit(self.url).netloc

    def ask(self, path: str, *, method: str = "GET", body: str = "", **headers: str) -> Answer:
        """Send a request as it is written here; of a header's name `_` stands for `-`."""
        connection = HTTPConnection(self.address, timeout=30)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body or None, named)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return Answer(answer.status, text, {name.lower(): value for name, value in answer.getheaders()})

    def post(self, path: str, fields: dict[str, str], **headers: str) -> Answer:
        """Post a form as our own pages do, unless `headers` say otherwise."""
        said = {"Origin": f"http://{self.address}", "Content_Type": "application/x-www-form-urlencoded"} | headers
        return self.ask(path, method="POST", body=urlencode(fields), **{k: v for k, v in said.items() if v})

    def csrf_token(self, **headers: str) -> str:
        """Return the CSRF token that the server's own forms carry."""
        page = self.ask("/do/pause?kind=nothing", **headers).text
        return page.partition('name="csrf_token" value="')[2].partition('"')[0]


@contextmanager
def served(*typed: str, env: dict[str, str] | None = None, errors: IO[str] | None = None) -> Iterator[Server]:
    """Run `fairlead dashboard` on a free port, until the end of the block. `errors`: its standard error."""
    command = [sys.executable, "-m", "fairlead", "dashboard", "--port", "0", "--json", *typed]
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **(env or {})}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=variables) as process:
        try:
            assert process.stdout is not None
            yield Server(json.loads(process.stdout.readline())["url"])
        finally:
            process.terminate()


def dead_letter(app: App, user: str, *names: str, error: str = "ValueError: no such order") -> None:
    """Make dead letters with these names for a user of `shop`."""

    def fail(job: Job) -> None:
        raise ValueError(ERRORS[job.payload["order"]])

    if "receipt" not in {each.kind for each in app.registry}:
        app.handler("receipt", permanent=(ValueError,))(fail)
    for name in names:
        ERRORS[name] = error.removeprefix("ValueError: ")
        app.tenant("shop", user).enqueue("receipt", {"order": name}, item_id=name)
    drain(app, raise_errors=False)
