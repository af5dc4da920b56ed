"""Access control: logins, hosts and origins, tested by requests that no ordinary browser sends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead import App
from fairlead.audit_log import read_log
from fairlead.dashboard.access import Access, is_same_site
from fairlead.testing import drain
from tests.fairlead.dashboard.serving import TOKEN, Server, served
from tests.fairlead.shell import run, run_process

NOW_US = 1_700_000_000_000_000


@pytest.fixture(scope="module")
def guarded(app: App, store: Path) -> Iterator[Server]:
    """A dashboard that demands a token."""
    with served("--store", f"embedded:{store}", env={"FAIRLEAD_DASHBOARD_TOKEN": TOKEN}) as server:
        yield server


@pytest.fixture(scope="module")
def showing(app: App, store: Path) -> Iterator[Server]:
    """A read-only dashboard."""
    with served("--store", f"embedded:{store}", "--read-only") as server:
        yield server


def paused(app: App, kind: str) -> bool:
    return kind in [entry.audit_entry.to.get("kind") for entry in read_log(app.shards, entries_max=100)]


# --- The token ---


@pytest.mark.parametrize(
    "path", ["/", "/tenants", "/workflows", "/item?app=a&user=b&id=00", "/do/pause?kind=mail", "/nothing"]
)
def test_without_the_token_every_page_leads_to_the_login(guarded: Server, path: str) -> None:
    answer = guarded.ask(path)
    assert (answer.status, answer.text) == (303, "")
    assert answer.headers["location"].startswith("/login?next=%2F")


def test_without_the_token_nothing_live_is_sent_and_nothing_done(guarded: Server, app: App) -> None:
    assert guarded.ask("/live/").status == 401
    assert guarded.ask("/live/workflows").status == 401
    assert guarded.post("/do/pause", {"kind": "tokenless"}).status == 401
    assert guarded.ask("/", Authorization="Bearer nonsense").status == 303
    assert (
        guarded.ask("/", Cookie=f"fairlead_{guarded.address.rpartition(':')[2]}=nonsense.nonsense.nonsense").status
        == 303
    )
    assert not paused(app, "tokenless")


def test_a_wrong_token_is_refused(guarded: Server) -> None:
    answer = guarded.post("/login", {"token": TOKEN + "!", "next": "/"})
    assert (answer.status, "set-cookie" in answer.headers) == (403, False)
    assert "That is not the token" in answer.text


def test_scripts_and_other_sites_do_not_get_the_cookie_of_a_login(guarded: Server, app: App) -> None:
    answer = guarded.post("/login", {"token": TOKEN, "name": "Eve <b>", "next": "/kinds"})
    assert (answer.status, answer.headers["location"]) == (303, "/kinds")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert TOKEN not in cookie
    session = cookie.partition(";")[0]
    assert "Log out Eve &lt;b&gt;" in guarded.ask("/", Cookie=session).text
    csrf_token = guarded.csrf_token(Cookie=session)
    assert guarded.post("/do/pause", {"kind": "named", "csrf_token": csrf_token}, Cookie=session).status == 303
    audit_entry = next(
        entry.audit_entry
        for entry in read_log(app.shards, entries_max=100)
        if entry.audit_entry.to.get("kind") == "named"
    )
    assert (audit_entry.by, audit_entry.through) == ("Eve <b> from 127.0.0.1", "dashboard")


def test_the_cookie_of_a_login_by_tls_travels_by_tls_alone(guarded: Server) -> None:
    """A proxy ends the TLS, and forwards the browser's headers."""
    by_tls = guarded.post("/login", {"token": TOKEN}, Origin=f"https://{guarded.address}")
    in_clear = guarded.post("/login", {"token": TOKEN})
    assert (by_tls.status, in_clear.status) == (303, 303)
    assert "; Secure" in by_tls.headers["set-cookie"]
    assert "; Secure" not in in_clear.headers["set-cookie"], "the browser would not send it back"


@pytest.mark.parametrize("foreign", ['prefs={"a":1}', "a b=c", "=;,", '"', "é=é", "prefs=x; prefs"])
def test_a_login_survives_the_cookies_of_other_servers_of_this_machine(guarded: Server, foreign: str) -> None:
    """Cookies have no port: a browser sends the cookies of all servers of a host to each of them."""
    session = guarded.post("/login", {"token": TOKEN}).headers["set-cookie"].partition(";")[0]
    for cookies in (f"{foreign}; {session}", f"{session}; {foreign}"):
        assert guarded.ask("/log", Cookie=cookies).status == 200


def test_a_program_with_the_token_in_its_header_reads_and_acts(guarded: Server, app: App) -> None:
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    assert guarded.ask("/", **bearer).status == 200
    assert guarded.post("/do/pause", {"kind": "by a program"}, Origin="", **bearer).status == 303
    assert paused(app, "by a program")


def test_the_login_leads_nowhere_else(guarded: Server) -> None:
    for elsewhere in ("https://evil.example/", "//evil.example/", "/\\evil.example", "javascript:alert(1)"):
        assert guarded.post("/login", {"token": TOKEN, "next": elsewhere}).headers["location"] == "/"


def test_elsewhere_than_on_this_machine_it_does_not_start_without_a_token(store: Path, app: App) -> None:
    for host in ("0.0.0.0", "::"):
        refused = run("dashboard", "--host", host, "--port", 0, "--store", f"embedded:{store}")
        assert refused.code == 2
        assert "only with a token" in refused.err
        assert "--token-file" in refused.err


def test_a_token_that_can_be_guessed_is_refused(store: Path, app: App, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("short\n")
    refused = run("dashboard", "--port", 0, "--token-file", tmp_path / "token", "--store", f"embedded:{store}")
    assert refused.code == 2
    assert "too short" in refused.err


def test_a_token_file_that_is_missing_or_empty_is_refused(store: Path, app: App, tmp_path: Path) -> None:
    """A misspelt path must not start a dashboard without a token."""
    (tmp_path / "empty").touch()
    for name in ("missing", "empty"):
        refused = run("dashboard", "--port", 0, "--token-file", tmp_path / name, "--store", f"embedded:{store}")
        assert refused.code == 2


def test_the_token_is_no_setting_and_is_shown_by_none(store: Path, app: App) -> None:
    shown = run_process("config", "--store", f"embedded:{store}", env={"FAIRLEAD_DASHBOARD_TOKEN": TOKEN})
    assert shown.code == 0
    assert TOKEN not in shown.out


def test_a_session_ends_after_a_working_day_and_with_its_server() -> None:
    def access(secret: bytes) -> Access:
        return Access(token=TOKEN, secret=secret, host_names=frozenset(), read_only=False, anonymous_name="")

    mine = access(b"one")
    cookie = mine.session("eve", now_us=NOW_US)
    in_time, late = NOW_US + 11 * 3_600_000_000, NOW_US + 13 * 3_600_000_000
    visitor = mine.visitor(cookie=cookie, authorization="", now_us=in_time)
    assert visitor is not None
    assert visitor.name == "eve"
    assert mine.visitor(cookie=cookie, authorization="", now_us=late) is None
    assert access(b"other").visitor(cookie=cookie, authorization="", now_us=in_time) is None
    forged = cookie.replace(cookie.split(".")[0], str(late * 2))
    assert mine.visitor(cookie=forged, authorization="", now_us=late) is None


# --- Other sites ---


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": ""},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
        {"Origin": "", "Sec_Fetch_Site": "none"},
    ],
)
def test_a_post_that_is_not_from_our_own_pages_is_refused(server: Server, app: App, headers: dict[str, str]) -> None:
    csrf_token = server.csrf_token()
    assert server.post("/do/pause", {"kind": "foreign", "csrf_token": csrf_token}, **headers).status == 403
    assert not paused(app, "foreign")


@pytest.mark.parametrize(("led_from", "status"), [("cross-site", 403), ("same-site", 403), ("none", 200),
                                                  ("same-origin", 200)])  # fmt: skip
def test_a_link_of_another_site_leads_to_no_button(server: Server, led_from: str, status: int) -> None:
    """A visitor who presses Enter elsewhere would confirm. Typed and bookmarked addresses lead to the question."""
    assert server.ask("/do/discard?many=1", Sec_Fetch_Site=led_from).status == status
    assert server.ask("/dead-letters", Sec_Fetch_Site=led_from).status == 200


@pytest.mark.parametrize("csrf_token", ["", "guessed", "é"])
def test_a_form_without_the_csrf_token_of_our_pages_is_refused(server: Server, app: App, csrf_token: str) -> None:
    assert server.post("/do/pause", {"kind": "tokenless form", "csrf_token": csrf_token}).status == 403
    assert not paused(app, "tokenless form")


def test_a_csrf_token_in_the_address_is_none(server: Server, app: App) -> None:
    """Addresses are forwarded and logged. They may contain the target of an action, but not the token."""
    address = f"/do/pause?kind=addressed&csrf_token={server.csrf_token()}"
    assert server.post(address, {}).status == 403
    assert server.post(address, {"csrf_token": server.csrf_token()}, Origin="http://evil.example").status == 403
    assert not paused(app, "addressed")
    assert server.post("/do/pause?kind=addressed", {"csrf_token": server.csrf_token()}).status == 303
    assert paused(app, "addressed")


def test_the_browsers_headers_decide_where_a_post_comes_from() -> None:
    assert is_same_site({"origin": "http://127.0.0.1:8321", "host": "127.0.0.1:8321"})
    assert is_same_site({"sec-fetch-site": "same-origin", "origin": "https://db.example", "host": "db.example"})
    assert not is_same_site({"origin": "http://127.0.0.1:8322", "host": "127.0.0.1:8321"})
    assert not is_same_site({})


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8321", "127.0.0.1.evil.example", ""])
def test_a_foreign_host_name_is_not_answered(server: Server, host: str) -> None:
    """DNS rebinding: a page of `evil.example` could read a response to that name."""
    assert server.ask("/", Host=host).status == 421


@pytest.mark.parametrize("host", ["localhost:1", "127.0.0.1", "[::1]:8321", "10.0.0.1"])
def test_this_machines_names_and_plain_addresses_are_answered(server: Server, host: str) -> None:
    assert server.ask("/log", Host=host).status == 200


def test_a_name_that_was_allowed_is_answered() -> None:
    names = frozenset({"queue.example"})
    access = Access(token=None, secret=b"", host_names=names, read_only=False, anonymous_name="")
    assert access.is_allowed_host("Queue.example:8321")
    assert not access.is_allowed_host("other.example")


def test_every_response_forbids_scripts_of_other_origins(server: Server) -> None:
    for path in ("/", "/nothing-here", "/static/fairlead.js", "/dead-letters?user=half", "/item?app=a&user=b&id=zz"):
        headers = server.ask(path).headers
        assert "script-src 'self'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"


# --- Read-only ---


def test_a_read_only_dashboard_has_no_buttons_and_accepts_no_posts(showing: Server, app: App) -> None:
    app.workflow("read only")(lambda wf: wf.wait_for("approved"))
    workflow = app.tenant("shop", "shown").enqueue("read only")
    drain(app)
    item = f"/item?app=shop&user=shown&id={workflow.item_id.hex()}"
    for path in ("/", "/tenants", "/kinds", "/dead-letters", "/workflows", item):
        assert "data-asks" not in showing.ask(path).text
    assert "wait_for approved" in showing.ask(item).text
    csrf_token = showing.csrf_token()
    assert showing.post("/do/pause", {"kind": "shown", "csrf_token": csrf_token}).status == 403
    assert not paused(app, "shown")


# --- Bad requests ---


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/nothing", 404),
        ("/item?app=shop&user=alice&id=zz", 404),
        ("/item?app=shop&user=alice&id=00", 200),
        ("/item?app=&user=&id=00", 400),
        ("/tenant?app=shop", 400),
        ("/tenant?app=shop&user=%00", 400),
        ("/tenant?local=mail&shard=none", 404),
        ("/dead-letters?user=half", 400),
        ("/dead-letters/items?user=half", 400),
        ("/kind", 400),
        ("/kind?kind=never-seen", 200),
        ("/tenants?find=%00", 200),
        ("/tenants?find=%2F", 200),
        ("/dead-letters/items?from=main:zz", 400),
        ("/dead-letters/items?from=main:5", 400),
        ("/dead-letters/items?from=main:", 400),
        ("/dead-letters/items?from=5", 400),
        ("/workflows?state=gone", 400),
        ("/workflows?user=half", 400),
        ("/workflows?page=0", 400),
        ("/workflows?app=shop&user=alice&from=main:zz", 400),
        ("/workflows?app=shop&user=alice&from=main:ff", 200),
        ("/workflows?app=shop&user=alice&zone=%00", 400),
        ("/workflows?app=shop&user=never-seen", 200),
        ("/workflows?local=mail&shard=none", 404),
        ("/do/explode?kind=mail", 400),
        ("/do/retry", 400),
        ("/do/pause", 400),
        ("/search?q=%ED%A0%80", 200),
        ("/static/../server.py", 404),
        ("/live/nothing", 404),
    ],
)
def test_a_link_that_makes_no_sense_is_answered_in_words(server: Server, path: str, status: int) -> None:
    assert server.ask(path).status == status


def test_a_form_that_is_too_long_is_not_read(server: Server) -> None:
    assert server.post("/do/pause", {"kind": "x" * 70_000}).status == 413


def test_an_action_on_what_is_not_there_says_so(server: Server) -> None:
    csrf_token = server.csrf_token()
    said = {"app": "shop", "user": "nobody", "id": "00" * 16, "csrf_token": csrf_token}
    assert server.post("/do/retry", said).status == 404
    assert server.post("/do/cancel", said).status == 404


def test_an_address_that_is_taken_is_named(server: Server, store: Path) -> None:
    refused = run("dashboard", "--port", server.address.rpartition(":")[2], "--store", f"embedded:{store}")
    assert refused.code == 2
    assert "cannot listen there" in refused.err


def test_an_unreadable_shard_is_reported_and_hides_no_other(app: App, store: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "data.mdb").write_bytes(b"this is no store")
    stores = [
        "--store",
        f"good=embedded:{store}",
        "--store",
        f"bad=embedded:{broken}",
        "--store",
        f"gone=embedded:{tmp_path / 'gone'}",
    ]
    with served(*stores) as server:
        for path in ("/", "/tenants", "/tenants?find=shop", "/kinds", "/kind?kind=greet", "/running", "/delayed",
                     "/periodic", "/workflows", "/workflows?state=dead+letter",
                     "/dead-letters", "/dead-letters/items", "/log"):  # fmt: skip
            answer = server.ask(path)
            assert answer.status == 200, path
            assert "there is no store here" in answer.text, path
        assert "greet" in server.ask("/kinds").text
        assert "No periodic work." in server.ask("/periodic").text
        assert "Shards that cannot be read are left out." in server.ask("/periodic").text


def test_a_page_states_nothing_about_unreadable_shards(app: App, tmp_path: Path) -> None:
    """Before, pages of unreadable shards said that nothing runs, and that there are no dead letters."""
    with served("--store", f"embedded:{tmp_path / 'gone'}") as server:
        for path in ("/tenants?find=shop", "/kinds", "/kind?kind=greet", "/running", "/delayed", "/periodic",
                     "/workflows", "/workflows?state=dead+letter",
                     "/dead-letters", "/dead-letters/items", "/log"):  # fmt: skip
            text = server.ask(path).text
            assert "there is no store here" in text, path
            assert 'class="empty"' not in text, path
