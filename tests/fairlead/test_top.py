"""`fairlead top`, in a pipe and on a terminal."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from fairlead import App
from fairlead.queries.health import Severity, concerns
from fairlead.queries.per_shard import ShardResult
from fairlead.shards import StoreMissing
from fairlead.status import ShardStatus
from fairlead.views import progress_in_words
from fairlead.zones.records import KindPolicy, Progress
from fairlead.zones.top_level.depth import Backlog
from fairlead.zones.top_level.sessions import ListedSession, SessionRecord
from tests.fairlead.shell import ROOT, run

PATIENCE_S = 30.0
NOW_US = 1_700_000_000_000_000


@pytest.fixture
def store(tmp_path: Path) -> str:
    url = f"embedded:{tmp_path / 'store'}"
    app = App(url)
    for _ in range(3):
        app.tenant("shop", "alice").enqueue("mail")
    app.tenant("shop", "bob").enqueue("index", delay=60)
    app.control.pause_kind("mail")
    app.close()
    return url


def test_in_a_pipe_top_prints_once(store: str) -> None:
    looked = run("top", "--store", store)
    assert looked.code == 0
    for said in ("items 4", "consumers 0", "no live consumer serves it", "Paused on shard main: mail", "shop/alice"):
        assert said in looked.out


def test_with_json_top_prints_one_object(store: str) -> None:
    answer = run("top", "--json", "--store", store).json
    assert (answer["items"], answer["running"], answer["consumers"]) == (4, 0, 0)
    assert [(kind["kind"], kind["items"], kind["paused"]) for kind in answer["kinds"]] == [
        ("index", 1, False),
        ("mail", 3, True),
    ]
    assert answer["tenants"][0] == {"app": "shop", "user": "alice", "shard": "main", "items": 3}
    assert answer["concerns"][0]["severity"] == "alarm"


class Terminal:
    """A terminal in which `fairlead top` runs, and its output so far."""

    def __init__(self, process: subprocess.Popen[bytes], terminal: int) -> None:
        self.process = process
        self._terminal = terminal
        self._output = select.poll()
        self._output.register(terminal, select.POLLIN)
        self.drawn = ""

    def await_text(self, text: str) -> None:
        until_s = time.monotonic() + PATIENCE_S
        while text not in self.drawn:
            assert time.monotonic() < until_s, self.drawn
            self._read()

    def press(self, key: str) -> None:
        os.write(self._terminal, key.encode())

    def await_end(self) -> int:
        until_s = time.monotonic() + PATIENCE_S
        while self.process.poll() is None:
            assert time.monotonic() < until_s, "it did not end"
            self._read()
        self._read()
        return self.process.returncode

    def _read(self) -> None:
        if self._output.poll(50):
            with suppress(OSError):  # The other side is closed.
                self.drawn += os.read(self._terminal, 65_536).decode(errors="replace")


@contextmanager
def terminal(store: str) -> Iterator[Terminal]:
    mine, its = pty.openpty()
    command = [sys.executable, "-m", "fairlead", "top", "--interval", "0.2", "--store", store]
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "100", "LINES": "40"}
    process = subprocess.Popen(command, stdin=its, stdout=its, stderr=its, env=variables, start_new_session=True)
    os.close(its)
    try:
        yield Terminal(process, mine)
    finally:
        process.kill()
        process.wait()
        os.close(mine)


@pytest.mark.parametrize("end", ["q", "Ctrl-C"])
def test_on_a_terminal_top_continues_until_it_is_ended(store: str, end: str) -> None:
    with terminal(store) as shown:
        shown.await_text("shop/alice")
        app = App(store)
        app.tenant("shop", "carol").enqueue("mail")
        app.close()
        shown.await_text("shop/carol")
        if end == "q":
            shown.press("q")
        else:
            shown.process.send_signal(signal.SIGINT)
        assert shown.await_end() == 0
        assert "Traceback" not in shown.drawn


def test_progress_is_shown_with_its_numbers_and_its_note() -> None:
    """Before, only the note was shown."""
    assert progress_in_words(Progress(42_900, 100_000, "resizing", 0)) == "42,900 of 100,000, resizing"
    assert progress_in_words(Progress(0.5, None, "", 0)) == "0.50"


# --- What needs attention ---


def seen(**found: object) -> list[ShardResult[ShardStatus]]:
    return [ShardResult("main", "memory:", ShardStatus("main", "memory:", now_us=NOW_US, **found))]  # type: ignore[arg-type]


def consumer(*kinds: str, live: bool = True) -> ListedSession:
    return ListedSession(b"1", SessionRecord("db1", 7, list(kinds), NOW_US, NOW_US), live)


def test_nothing_needs_attention_where_all_is_served() -> None:
    assert concerns(seen(depth={"mail": 3}, consumers=(consumer("mail"),), waits=Backlog(NOW_US - 5))) == []


@pytest.mark.parametrize(
    ("found", "severity", "message"),
    [
        ({"depth": {"mail": 1}}, Severity.ALARM, "no live consumer serves it"),
        (
            {"depth": {"fax": 1}, "unserved": ("fax",), "consumers": (consumer("mail"),)},
            Severity.ALARM,
            "No live consumer of shard main handles fax",
        ),
        (
            {"waits": Backlog(NOW_US - 600_000_000), "consumers": (consumer("mail"),)},
            Severity.CARE,
            "has waited for 10 min",
        ),
        (
            {
                "waits": Backlog(NOW_US - 600_000_000, True, 3, 1, NOW_US - 600_000_000),
                "consumers": (consumer("mail"),),
            },
            Severity.CARE,
            "has waited for 10 min, and is held back",
        ),
        ({"consumers": (consumer(live=False),)}, Severity.CARE, "stopped sending heartbeats in the last minute"),
        ({"dead_letters": 1}, Severity.CARE, "1 dead letter on"),
        ({"dead_letters": 10_000}, Severity.CARE, "10,000 or more dead letters on"),
        ({"unreadable": 2}, Severity.CARE, "2 queues hold records on shard main that cannot be read"),
        ({"quarantined": 1}, Severity.NOTE, "1 damaged pair was set aside on shard main"),
        ({"paused": True}, Severity.NOTE, "Shard main is paused"),
        ({"kind_policies": {"mail": KindPolicy(paused=True)}}, Severity.NOTE, "Paused on shard main: mail"),
    ],
)
def test_what_needs_attention_is_listed(found: dict[str, object], severity: Severity, message: str) -> None:
    (concern,) = concerns(seen(**found))
    assert concern.severity is severity
    assert message in concern.message


def test_the_worst_comes_first_and_an_unreadable_shard_before_all() -> None:
    unread: ShardResult[ShardStatus] = ShardResult(
        "eu", "embedded:gone", error=StoreMissing(shard="eu", url="embedded:gone")
    )
    found = concerns([*seen(dead_letters=1, paused=True), unread])
    assert [each.severity for each in found] == [Severity.ALARM, Severity.CARE, Severity.NOTE]
    assert "Shard eu cannot be read: there is no store here" in found[0].message
    assert found[0].do.startswith("check the url")


@pytest.mark.parametrize("interval", ["100ms", "2h", "0", "soon"])
def test_an_interval_out_of_range_is_refused(store: str, interval: str) -> None:
    refused = run("top", "--interval", interval, "--store", store)
    assert refused.code == 2
    assert "interval" in refused.err
