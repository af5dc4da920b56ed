"""A web server that forks: an application that was opened before the fork works in every worker."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest

from fairlead import App
from tests.fairlead.shell import ROOT

PATIENCE_S = 60
REQUESTS = 40

SHOP = """
import os
import fairlead

app = fairlead.App("embedded:./data")
send_receipt = app.handler("receipt")(lambda job: None)
send_receipt.enqueue("shop/alice", "before the fork")

def web(environ, start_response):
    def both(tr):
        tr.add(("requests",), 1)
        tr.enqueue(send_receipt, os.getpid())
    app.tenant("shop/alice").transact(both)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [str(os.getpid()).encode()]
"""

ASYNC_SHOP = SHOP.replace("def both", "import asyncio\n    def both").replace(
    'app.tenant("shop/alice").transact(both)', 'asyncio.run(app.tenant("shop/alice").atransact(both))'
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@contextmanager
def served(folder: Path, code: str) -> Iterator[str]:
    """Serve `code` by three forked workers, and yield its address."""
    (folder / "shop_web.py").write_text(code)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = ["gunicorn", "shop_web:web", "--bind", f"127.0.0.1:{port}", "--workers", "3", "--preload"]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(folder)}
    with subprocess.Popen([sys.executable, "-m", *command], cwd=folder, env=env) as process:
        try:
            yield f"http://127.0.0.1:{port}/"
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE_S)


def answer(url: str) -> str:
    """Return the answer to a request; the server may not listen yet."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            with urlopen(Request(url, method="POST"), timeout=PATIENCE_S) as response:
                body: bytes = response.read()
                return body.decode()
        except URLError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


@pytest.mark.parametrize("code", [SHOP, ASYNC_SHOP], ids=["plain calls", "awaited calls"])
def test_an_application_opened_before_the_fork_works_in_every_worker(folder: Path, code: str) -> None:
    with served(folder, code) as url:
        pids = {answer(url) for _ in range(REQUESTS)}
    alice = App("embedded:./data").tenant("shop/alice")
    assert alice.count() == {"receipt": REQUESTS + 1}
    assert alice.transact(lambda tr: tr.get(("requests",))) == REQUESTS.to_bytes(8, "little")
    enqueuers = {item.payload for item in alice.peek(items_max=1_000)}
    assert enqueuers == {"before the fork", *map(int, pids)}
