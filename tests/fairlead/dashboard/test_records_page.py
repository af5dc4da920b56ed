"""The page of records, and the button that cancels the build of an index."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from typing import Any

import pytest

from fairlead import App
from fairlead.audit_log import read_log
from fairlead.dashboard.actions import action_of
from fairlead.index_changes import NoBuild
from fairlead.record_type import Records
from fairlead.testing import ManualClock, drain
from fairlead.zones.engines import StoreUnavailable
from tests.fairlead.dashboard.asking import open_site, read

PHONE = {"type": "account", "field": "phone"}
LINK = "/do/cancel-index?type=account&amp;field=phone"


@pytest.fixture
def app() -> Iterator[App]:
    made = App({"main": "memory:", "us2": "memory:"}, clock=ManualClock())
    yield made
    made.close()


@pytest.fixture
def accounts(app: App) -> Records[dict[str, Any]]:
    """Three accounts, of which two have one phone."""
    made = app.records("account", unique=("email",))
    for number in range(3):
        made.create(f"u{number}", {"email": f"{number}", "phone": str(number // 2)})
    return made


def text_of(app: App) -> str:
    answer = read(open_site(app), "/records", {})
    assert answer.status == 200, answer.text
    return answer.text


def rows(app: App) -> dict[str, dict[str, str]]:
    """Return the cells of each row by the names of their columns, as text; rows by their index."""
    found = {}
    for row in re.findall(r"<tr data-key.*?</tr>", text_of(app), re.S):
        cells = re.findall(r'<t[hd] [^>]*data-label="([^"]*)"[^>]*>(.*?)</t[hd]>', row, re.S)
        texts = {name: " ".join(unescape(re.sub(r"<[^>]*>", " ", cell)).split()) for name, cell in cells}
        found[texts["Index"]] = texts
    return found


def test_an_application_without_records_says_so(app: App) -> None:
    assert "There are no records." in text_of(app)


def test_each_index_is_listed_with_its_state(app: App, accounts: Records[Any]) -> None:
    assert accounts.get("u0")
    row = rows(app)["account.email"]
    assert (row["How"], row["State"], row["Last change"]) == ("unique", "readable", "–")


def test_a_build_is_followed_until_its_violations_are_shown(app: App, accounts: Records[Any]) -> None:
    accounts.add_index("phone", unique=True)
    row = rows(app)["account.phone"]
    assert row["State"] == "hidden"
    assert row["Last change"].startswith("build under way telling all shards that writers maintain the index")
    assert "no live consumer" in row["Last change"]
    assert LINK in text_of(app)
    drain(app)
    row = rows(app)["account.phone"]
    assert (row["State"], row["Violations"]) == ("pending", "1")
    assert LINK not in text_of(app)


def test_the_button_cancels_the_build_and_the_audit_log_names_the_operator(app: App, accounts: Records[Any]) -> None:
    accounts.add_index("phone", unique=True)
    operator = app.operator._replace(name="mia", through="dashboard")
    done = action_of(app, "cancel-index", PHONE).do(operator)
    assert done == "The build of the index account.phone is being cancelled."
    assert [(each.action, each.audit_entry.by) for each in read_log(app.shards, entries_max=1)] == [
        ("cancel index", "mia")
    ]
    assert "being cancelled" in rows(app)["account.phone"]["Last change"]
    drain(app)
    assert "it was cancelled" in rows(app)["account.phone"]["Last change"]
    with pytest.raises(NoBuild):
        action_of(app, "cancel-index", PHONE).do(operator)


def test_types_of_other_shards_are_shown_if_one_is_away(
    app: App, accounts: Records[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    home = accounts.add_index("phone").progress().home
    away = next(name for name in app.shards if name != home)

    def refuse(*_: object, **__: object) -> None:
        raise StoreUnavailable("no answer", remedy="wait")

    monkeypatch.setattr(app.shards[away], "transact", refuse)
    assert f"Shard {away} cannot be read:" in text_of(app)
    assert "account.phone" in rows(app)


def test_markup_in_a_name_is_shown_as_text(app: App) -> None:
    markup = "<script>alert(1)</script>"
    app.records(markup, unique=("email",)).create("u", {"email": "1"})
    assert markup not in text_of(app)
    assert f"{markup}.email" in rows(app)
