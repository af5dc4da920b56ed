"""The page of moves, the line on the page of a tenant that moves, and the button that cancels a move."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape

import pytest

from fairlead import App, NoMove
from fairlead.audit_log import read_log
from fairlead.dashboard.actions import action_of
from fairlead.testing import ManualClock, drain
from fairlead.zones.engines import StoreUnavailable
from fairlead.zones.keyspace import TenantKeys
from fairlead.zones.layout import Tenant
from fairlead.zones.moving.move_record import move_key
from fairlead.zones.moving.source import read_move
from fairlead.zones.records import encode
from fairlead.zones.transaction_runner import Attempt
from tests.fairlead.dashboard.asking import open_site, read

ALICE = {"app": "shop", "user": "alice"}
LINK = "/do/cancel-move?app=shop&amp;user=alice"


@pytest.fixture
def app() -> Iterator[App]:
    """An application on two shards; Alice lives on `main`."""
    made = App({"main": "memory:", "us2": "memory:"}, clock=ManualClock())
    made.handler("mail")(lambda job: None)
    made.tenant("shop/alice").enqueue("mail", delay=3_600)
    yield made
    made.close()


def text_of(app: App, path: str, /, **query: str) -> str:
    answer = read(open_site(app), path, query)
    assert answer.status == 200, answer.text
    return answer.text


def note_slowed(app: App, *, slowed_us: int) -> None:
    """Let the record of the last move say that its mover could not catch up otherwise."""

    def body(attempt: Attempt) -> None:
        record = read_move(attempt.tr, Tenant("shop", "alice"))
        assert record is not None
        record.slowed_us = slowed_us
        attempt.tr.set(move_key(TenantKeys("shop", "alice")), encode(record))

    app.shards["main"].transact(body)


def rows(app: App) -> list[dict[str, str]]:
    """Return the cells of each row by the names of their columns, as text."""
    found = []
    for row in re.findall(r"<tr data-key.*?</tr>", text_of(app, "/moves"), re.S):
        cells = re.findall(r'<t[hd] [^>]*data-label="([^"]*)"[^>]*>(.*?)</t[hd]>', row, re.S)
        found.append({name: " ".join(unescape(re.sub(r"<[^>]*>", " ", cell)).split()) for name, cell in cells})
    return found


def test_a_move_that_waits_says_why_and_has_a_button(app: App) -> None:
    assert "No tenant moves" in text_of(app, "/moves")
    app.move("shop/alice", to="us2", mb_per_s=4)
    (row,) = rows(app)
    assert (row["Tenant"], row["From, to"], row["Copied"]) == ("shop/alice", "main to us2", "0 bytes")
    nobody = "its shard has no live consumer; start one with fairlead run"
    assert row["State"] == f"under way has not begun {nobody}"
    assert row["Rate"] == "– at most 4 MB/s"
    assert LINK in text_of(app, "/moves")


def test_a_move_that_has_ended_shows_how_long_transactions_waited(app: App) -> None:
    app.move("shop/alice", to="us2")
    app.clock.sleep_us(2_000_000)
    drain(app)
    (row,) = rows(app)
    assert row["State"] == "moved"
    assert row["Longest wait"].endswith(" ms")
    assert re.fullmatch(r"\d+ bytes/s at most 16 MB/s", row["Rate"])
    assert row["Began"].startswith("2.0 s ago ended ")
    assert LINK not in text_of(app, "/moves")


def test_a_move_that_slowed_its_writers_shows_how_long_each_of_them_waited(app: App) -> None:
    app.move("shop/alice", to="us2")
    drain(app)
    note_slowed(app, slowed_us=64_000)
    (row,) = rows(app)
    assert row["Longest wait"] == "64 ms"


def test_the_button_cancels_the_move_and_the_audit_log_names_the_operator(app: App) -> None:
    app.move("shop/alice", to="us2")
    asked = text_of(app, "/do/cancel-move", **ALICE)
    assert "Cancel the move of shop/alice?" in asked
    assert "The tenant stays where it is" in asked
    operator = app.operator._replace(name="mia", through="dashboard")
    assert action_of(app, "cancel-move", ALICE).do(operator) == "The move of shop/alice is being taken back."
    assert [(each.action, each.audit_entry.by) for each in read_log(app.shards, entries_max=1)] == [
        ("cancel move", "mia")
    ]
    assert rows(app)[0]["State"].startswith("being cancelled has not begun")
    assert LINK not in text_of(app, "/moves")
    drain(app)
    assert rows(app)[0]["State"] == "cancelled it was cancelled"
    with pytest.raises(NoMove):
        action_of(app, "cancel-move", ALICE).do(operator)


def test_a_tenants_page_says_that_it_moves_and_follows_it(app: App) -> None:
    item = app.tenant("shop/alice").peek()[0].id.hex()
    assert "Moves to" not in text_of(app, "/tenant", **ALICE)
    app.move("shop/alice", to="us2")
    page = text_of(app, "/tenant", **ALICE)
    assert "Moves to shard us2: has not begun; its items run meanwhile." in page
    assert LINK in page
    assert "to shard us2: has not begun" in text_of(app, "/item", **ALICE, id=item)
    other = App(config=app.config, clock=app.clock)
    other.shards._open.update(app.shards._open)  # Another process, which has not heard of the move.
    drain(app)
    page = text_of(other, "/tenant", **ALICE)
    assert "on shard us2" in page
    assert "Moves to" not in page
    other.shards._moved.clear()
    assert "on shard us2" in text_of(other, "/item", **ALICE, id=item)
    other.shards._moved.clear()
    assert read(open_site(other), "/workflows", ALICE).status == 200


def test_moves_of_other_shards_are_shown_if_one_is_away(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    app.move("shop/alice", to="us2")

    def refuse(*_: object, **__: object) -> None:
        raise StoreUnavailable("no answer", remedy="wait")

    monkeypatch.setattr(app.shards["us2"], "transact", refuse)
    assert "Shard us2 cannot be read:" in text_of(app, "/moves")
    assert [row["Tenant"] for row in rows(app)] == ["shop/alice"]


def test_markup_in_a_name_or_an_error_is_shown_as_text(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    markup = "<script>alert(1)</script>"
    app.tenant("shop", markup).enqueue("mail")
    move = app.move(app.tenant("shop", markup), to="us2" if app.tenant("shop", markup).shard.name == "main" else "main")
    move.cancel()
    monkeypatch.setattr("fairlead.zones.moving.mover.CANCELLED", markup)
    drain(app)
    assert markup not in text_of(app, "/moves")
    assert rows(app)[0]["State"] == f"cancelled {markup}"
