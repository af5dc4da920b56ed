"""A web server that forks: an application opened before the fork works in every worker."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest

from fairlead import App
from tests.fairlead.shell import ROOT

PATIENCE_S = 60
WORKERS = 2
REQUESTS_AT_ONCE = 8

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
    """Serve `code` by two forked workers, and yield its address."""
    (folder / "shop_web.py").write_text(code)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = ["gunicorn", "shop_web:web", "--bind", f"127.0.0.1:{port}", "--workers", str(WORKERS), "--preload"]
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


def answers_of_all_workers(url: str) -> list[str]:
    """Return the answers to requests at the same time: so many that each worker has answered one."""
    until = time.monotonic() + PATIENCE_S
    pids = [answer(url)]
    with ThreadPoolExecutor(REQUESTS_AT_ONCE) as pool:
        while len(set(pids)) < WORKERS:
            assert time.monotonic() < until, f"one worker answered all {len(pids)} requests"
            pids += pool.map(answer, REQUESTS_AT_ONCE * [url])
    return pids


@pytest.mark.parametrize("code", [SHOP, ASYNC_SHOP], ids=["plain calls", "awaited calls"])
def test_an_application_opened_before_the_fork_works_in_every_worker(folder: Path, code: str) -> None:
    with served(folder, code) as url:
        pids = answers_of_all_workers(url)
    alice = App("embedded:./data").tenant("shop/alice")
    assert alice.count() == {"receipt": len(pids) + 1}
    assert alice.transact(lambda tr: tr.get(("requests",))) == len(pids).to_bytes(8, "little")
    enqueuers = Counter(str(item.payload) for item in alice.peek(items_max=10_000))
    assert enqueuers == Counter(["before the fork", *pids])
