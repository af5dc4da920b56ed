"""The questions of an operator with a browser: is it healthy, who waits, why does an item not run, can it run again."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser, Page, expect

from fairlead import App, Job, Retry, new_item
from fairlead.actors.consumer import Consumer
from fairlead.actors.runtime.actor_identity import Identity
from fairlead.audit_log import read_log
from fairlead.fleet import open_for_actors
from fairlead.testing import drain
from tests.fairlead.dashboard.browsing import PHONE, page_of, tile
from tests.fairlead.dashboard.serving import Server, dead_letter

MARKUP = "<script>alert('markup')</script><img src=x onerror=alert('markup')>\"'&lt;</script>"
PAGES = ["/", "/tenants", "/tenants?sort=time", "/tenant?app=shop&user=phone", "/kinds", "/running",
         "/workflows", "/delayed", "/dead-letters", "/dead-letters/items", "/kind?kind=receipt", "/periodic", "/moves",
         "/search?q=nothing", "/log", "/do/pause?kind=mail"]  # fmt: skip

# The right edge of each visible button, in pixels. In one call: a live page may replace a button between two calls.
BUTTON_ENDS = """
    [...document.querySelectorAll("main .button")]
        .filter(each => each.checkVisibility({visibilityProperty: true}))
        .map(each => each.getBoundingClientRect().right)
"""


@pytest.fixture
def page(browser: Browser, server: Server) -> Iterator[Page]:
    with page_of(browser, server.url) as page:
        yield page


def test_a_drain_is_seen_live_without_a_reload(page: Page, app: App) -> None:
    users = ["drained", "others"]
    for user in users:
        for number in range(30):
            app.tenant("shop", user).enqueue("slow", {"number": number})
    app.handler("slow")(lambda job: time.sleep(0.02))
    page.goto("/")
    before = int(tile(page, "Items in queues"))
    assert before >= 60
    page.evaluate("window.stayed = true")
    running = Consumer(open_for_actors(app), Identity(os.urandom(8), "test", os.getpid(), app.clock.now_us()))
    try:
        expect(page.locator(".tiles > div", has_text="Live consumers").locator("dd")).to_have_text("1")
        expect(page.locator(".tiles > div", has_text="Items in queues").locator("dd")).to_have_text(str(before - 60))
        page.get_by_role("link", name="Kinds").click()
        expect(page.locator("tr[data-key=slow] td[data-label=Completed]")).to_have_text("60")
    finally:
        running.stop(drain=1)


def test_a_page_that_changes_keeps_what_is_open_and_focused_and_can_be_stopped(page: Page, app: App) -> None:
    dead_letter(app, "patient", "patient-1")
    page.goto("/dead-letters/items?app=shop&user=patient")
    page.locator("article.card summary").click()
    page.get_by_role("link", name="Retry", exact=True).focus()
    page.evaluate("window.stayed = document.activeElement")
    dead_letter(app, "patient", "patient-2")
    expect(page.locator("article.card")).to_have_count(2)
    assert page.evaluate("window.stayed === document.activeElement")
    assert page.locator("article.card details[open]").count() == 1
    page.get_by_role("button", name="Live").click()
    expect(page.get_by_role("button", name="Stopped")).to_be_visible()


def test_a_page_without_updates_says_that_it_is_not_live_and_connects_again(
    browser: Browser, server: Server, app: App
) -> None:
    """The server updates at most fifty pages. A browser does not connect again by itself after a refusal."""
    context = browser.new_context(base_url=server.url)
    try:
        page = context.new_page()
        page.clock.install()
        page.route("**/live/**", lambda route: route.fulfill(status=503, body="Too many pages are looked at."))
        page.goto("/kinds")
        expect(page.get_by_role("button", name="Not live")).to_be_visible()
        page.unroute("**/live/**")
        app.tenant("shop", "refused").enqueue("only after it was refused")
        page.clock.run_for(6_000)
        expect(page.get_by_role("button", name="Live", exact=True)).to_be_visible()
        expect(page.locator("tbody")).to_contain_text("only after it was refused")
    finally:
        context.close()


def test_an_item_is_found_by_its_name_and_says_why_it_does_not_run(page: Page, app: App) -> None:
    app.tenant("shop", "asker").enqueue("report", {"year": 2026}, item_id="report-2026", delay=3600)
    page.goto("/")
    page.keyboard.press("/")
    page.keyboard.type("report-2026")
    page.keyboard.press("Enter")
    page.locator("article.card a").first.click()
    expect(page.locator(".verdict")).to_contain_text("It vests in")
    expect(page.locator("pre")).to_contain_text('"year": 2026')


def test_an_item_that_is_to_be_tried_again_shows_the_traceback_of_its_last_failure(page: Page, app: App) -> None:
    def send_fax(job: Job) -> None:
        raise LookupError("the line is busy")

    app.handler("fax", retry=Retry(backoff=600))(send_fax)
    app.tenant("shop", "faxer").enqueue("fax", item_id="fax-7")
    drain(app, raise_errors=False)
    page.goto("/search?q=fax-7")
    page.locator("article.card a").first.click()
    expect(page.locator("details[open] pre")).to_contain_text("in send_fax")


def test_a_dead_letter_is_retried_after_a_question_and_logged(page: Page, app: App) -> None:
    dead_letter(app, "unlucky", "order-1", "order-2")
    page.goto("/dead-letters/items?app=shop&user=unlucky")
    page.locator("article.card").first.get_by_role("link", name="Retry").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("It goes back into its queue")
    dialog.get_by_role("button", name="Retry it").click()
    expect(page.get_by_role("status")).to_contain_text("Retried item")
    assert app.tenant("shop", "unlucky").count() == {"receipt": 1}
    audit_entry = read_log(app.shards, entries_max=1)[0].audit_entry
    assert (audit_entry.what, audit_entry.through, audit_entry.to["tenant"]) == (
        "retry",
        "dashboard",
        ["shop", "unlucky"],
    )
    page.goto("/log")
    expect(page.locator("tbody tr").first).to_contain_text("tenant shop/unlucky")


def test_matching_dead_letters_are_counted_and_then_discarded(page: Page, app: App) -> None:
    dead_letter(app, "crowd", *(f"crowd-{number}" for number in range(7)))
    page.goto("/dead-letters")
    page.get_by_label("App").fill("shop")
    page.get_by_label("User").fill("crowd")
    page.get_by_role("button", name="Show", exact=True).click()
    expect(page).to_have_url(re.compile("user=crowd"))
    page.wait_for_load_state()  # Before its script has run, the link leads to a page of its own.
    page.get_by_role("link", name="Discard them").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("7 items are deleted for good")
    dialog.get_by_role("link", name="No, go back").click()
    expect(dialog).to_have_count(0)
    assert len(app.tenant("shop", "crowd").dead_letters()) == 7
    page.get_by_role("link", name="Discard them").click()
    page.get_by_role("button", name="Discard them").click()
    expect(page.get_by_role("status")).to_contain_text("Discarded 7 items")
    assert app.tenant("shop", "crowd").dead_letters() == []


def test_matching_dead_letters_are_counted_and_then_retried(page: Page, app: App) -> None:
    dead_letter(app, "throng", *(f"throng-{number}" for number in range(5)))
    page.goto("/dead-letters/items?app=shop&user=throng")
    page.get_by_role("link", name="Retry them").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("5 items go back into their queues, due now: 5 receipt")
    dialog.get_by_role("button", name="Retry them").click()
    expect(page.get_by_role("status")).to_contain_text("Retried 5 items")
    expect(page.locator("#live")).to_contain_text("No dead letters match.")
    assert app.tenant("shop", "throng").count() == {"receipt": 5}
    audit_entry = read_log(app.shards, entries_max=1)[0].audit_entry
    assert (audit_entry.what, audit_entry.count, audit_entry.ended, audit_entry.to) == (
        "retry",
        5,
        True,
        {"tenant": ["shop", "throng"]},
    )


def test_a_group_of_dead_letters_is_opened_and_retried_as_a_whole(page: Page, app: App) -> None:
    for number in range(3):
        dead_letter(app, "group", f"group-{number}", error=f"ValueError: no stock of {number}00 crates")
    page.goto("/dead-letters?app=shop&user=group")
    row = page.locator("tbody tr", has_text="no stock of … crates")
    expect(row.locator("td[data-label=Items]")).to_have_text("3")
    row.get_by_role("link", name="no stock of").click()
    expect(page.locator("article.card")).to_have_count(3)
    page.get_by_role("link", name="Grouped by error").click()
    row.get_by_role("link", name="Retry", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Retry them").click()
    expect(page.get_by_role("status")).to_contain_text("Retried 3 items")
    assert app.tenant("shop", "group").count() == {"receipt": 3}


def test_a_tenant_is_found_by_the_beginning_of_its_name(page: Page, app: App) -> None:
    app.tenant("shop", "zacharias").enqueue("greet")
    page.goto("/")
    page.keyboard.press("/")
    page.keyboard.type("zach")
    page.keyboard.press("Enter")
    page.get_by_role("link", name="shop/zacharias").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("shop/zacharias")


def test_a_waiting_item_is_cancelled_and_logged(page: Page, app: App) -> None:
    item = app.tenant("shop", "leaver").enqueue("farewell", item_id="farewell-1", delay=3600)
    page.goto(f"/item?app=shop&user=leaver&id={item.item_id.hex()}")
    page.get_by_role("link", name="Cancel").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("It is deleted from its queue")
    dialog.get_by_role("button", name="Cancel it").click()
    expect(page.get_by_role("status")).to_contain_text("Cancelled item")
    expect(page.locator(".verdict")).to_contain_text("Cancelled")
    expect(page.get_by_role("link", name="Cancel")).to_have_count(0)
    assert app.tenant("shop", "leaver").count() == {}
    audit_entry = read_log(app.shards, entries_max=1)[0].audit_entry
    assert (audit_entry.what, audit_entry.through, audit_entry.to["tenant"]) == (
        "cancel",
        "dashboard",
        ["shop", "leaver"],
    )


@pytest.mark.parametrize(
    ("at", "row"),
    [
        ("/tenants", "tr[data-key='mainshop/paused']"),
        ("/kinds", "tr[data-key=mail]"),
        ("/", "tr[data-key=main]"),
    ],
)
def test_a_tenant_a_kind_and_a_shard_are_paused_and_go_on(page: Page, app: App, at: str, row: str) -> None:
    app.tenant("shop", "paused").enqueue("mail")
    page.goto(at)
    page.locator(row).get_by_role("link", name="Pause", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Pause").click()
    expect(page.get_by_role("status")).to_contain_text("Paused")
    expect(page.locator(row)).to_contain_text("paused")
    page.wait_for_load_state()  # Before its script has run, the link leads to a page of its own.
    page.locator(row).get_by_role("link", name="Resume", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Resume").click()
    expect(page.get_by_role("status")).to_contain_text("Resumed")
    expect(page.locator(row).locator(".badge", has_text="paused")).to_have_count(0)


def test_a_payload_full_of_markup_is_shown_as_text(page: Page, app: App) -> None:
    """The fixture fails if a script ran, or a picture was requested."""
    dead_letter(app, MARKUP[:90], MARKUP, error=f"ValueError: {MARKUP}")
    app.tenant(MARKUP[:90], "user").enqueue(MARKUP[:90], {MARKUP: MARKUP}, item_id=MARKUP + "2")
    named = [f"/kind?{urlencode({'kind': MARKUP[:90]})}", f"/tenants?{urlencode({'find': MARKUP})}"]
    for path in ("/", "/tenants", "/kinds", "/dead-letters", "/log", *named):
        page.goto(path)
        expect(page.locator("#live")).to_be_visible()
    page.goto("/dead-letters/items")
    page.locator("article.card", has_text="<script>").locator("a.name").first.click()
    expect(page.locator("pre").last).to_contain_text(MARKUP.replace('"', '\\"'))
    expect(page.locator("dd", has_text="<script>alert").first).to_be_visible()
    page.goto("/search")
    page.locator("main").get_by_label("Item id or name").fill(MARKUP + "2")
    page.keyboard.press("Enter")
    page.locator("article.card a").first.click()
    expect(page.locator("pre").last).to_contain_text("<img src=x onerror=")
    assert page.locator("img[src=x]").count() == 0


def press_until_focused(page: Page, text: str) -> None:
    """Press Tab until the element with this text has the focus."""
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent.trim()") == text:
            return
    pytest.fail(f"no way leads to {text} by keyboard")


def test_all_pages_are_reached_and_a_kind_is_paused_by_keyboard_alone(page: Page, app: App) -> None:
    kind = "! typed"  # The first by its name, so that its button is the first.
    app.tenant("shop", "typist").enqueue(kind)
    page.goto("/")
    for name in ("Tenants", "Running", "Workflows", "Delayed", "Dead letters", "Log", "Kinds"):
        press_until_focused(page, name)
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name=name, level=1)).to_be_visible()
    press_until_focused(page, "Pause")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_contain_text(f"Pause kind {kind}?")
    expect(page.get_by_role("button", name="Pause")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("status")).to_contain_text(f"Paused kind {kind}")
    press_until_focused(page, "Resume")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Resume")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("status")).to_contain_text(f"Resumed kind {kind}")


def test_everything_is_done_by_keyboard_alone(page: Page, app: App) -> None:
    dead_letter(app, "keys", "keys-1")
    page.goto("/dead-letters/items?app=shop&user=keys")
    page.keyboard.press("Tab")
    expect(page.get_by_text("Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    press_until_focused(page, "Discard")
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid", "one does not see where one is"
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert page.evaluate("document.activeElement.textContent.trim()") == "Discard"
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Discard it")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("status")).to_contain_text("Discarded")
    assert app.tenant("shop", "keys").dead_letters() == []


def test_a_phone_scrolls_no_page_sideways(browser: Browser, server: Server, app: App) -> None:
    app.tenant("shop", "phone").enqueue("x" * 90, {"long": "y" * 500}, item_id="phone")
    app.tenant("shop", "z" * 96).enqueue("mail", delay=60)
    dead_letter(app, "phone", "phone-dead", error="ValueError: " + "w" * 300)
    with page_of(browser, server.url, viewport=PHONE, has_touch=True) as page:
        for path in PAGES:
            page.goto(path)
            wide = page.evaluate("document.documentElement.scrollWidth")
            assert wide <= PHONE["width"], f"{path} is {wide} wide"
        page.goto("/search?q=phone&app=shop&user=phone")
        page.locator("article.card a").first.click()
        page.wait_for_load_state()
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


@pytest.mark.parametrize("width", [760, 820, 1024, 1150, 1200, 1280, 1440])
def test_no_table_is_wider_than_its_window_and_every_button_is_within_it(
    browser: Browser, server: Server, app: App, width: int
) -> None:
    """Before, between 760 and 1,200 pixels, `Pause` and `Cancel` were reachable by horizontal scrolling only."""
    app.control.limit_kind("throttled_mail_of_the_shop", max_running=3, per_s=0.5)
    started, go_on = threading.Event(), threading.Event()

    def export(job: Job) -> None:
        job.progress(42_900, 100_000, "exporting the second half of the year")
        started.set()
        go_on.wait(60)

    kind = f"export_of_the_yearly_accounts_{width}"
    app.handler(kind)(export)
    app.tenant("shop", "acme-incorporated").enqueue(kind, {"year": 2026}, item_id=f"export-{width}")
    running = Consumer(open_for_actors(app), Identity(os.urandom(8), "test", os.getpid(), app.clock.now_us()))
    try:
        assert started.wait(30)
        with page_of(browser, server.url, viewport={"width": width, "height": 900}) as page:
            measured = 0
            page.goto("/running")
            expect(page.get_by_role("link", name=f"export-{width}")).to_be_visible()
            for path in PAGES:
                page.goto(path)
                # Both widths are rounded separately.
                over = page.evaluate("(live => live.scrollWidth - live.clientWidth)(document.querySelector('#live'))")
                assert over <= 1, f"{path} is {over} pixels too wide"
                ends = page.evaluate(BUTTON_ENDS)
                measured += len(ends)
                assert max(ends, default=0) <= width, path
            assert measured, "no page has a button"
    finally:
        go_on.set()
        running.stop(drain=1)


def test_on_a_phone_the_current_page_is_in_sight_among_the_pages(browser: Browser, server: Server) -> None:
    with page_of(browser, server.url, viewport=PHONE, has_touch=True) as page:
        for path, name in (("/dead-letters", "Dead letters"), ("/log", "Log"), ("/", "Overview")):
            page.goto(path)
            box = page.get_by_role("link", name=name, exact=True).bounding_box()
            assert box is not None
            assert 0 <= box["x"] <= PHONE["width"] - box["width"], path


def test_tenants_come_fifty_at_a_time(page: Page, app: App) -> None:
    """Two hundred cards were 50,000 pixels high on a phone."""
    app.enqueue_many((app.tenant("paged", f"user {number}"), new_item("mail")) for number in range(60))
    page.goto("/tenants")
    expect(page.locator("tbody tr")).to_have_count(50)
    page.get_by_role("link", name="Next page").click()
    expect(page.get_by_text("Page 2 of 2")).to_be_visible()
    assert page.locator("tbody tr").count() >= 10
    page.get_by_role("link", name="Previous page").click()
    expect(page.get_by_text("Page 1 of 2")).to_be_visible()


def test_items_are_told_apart_by_their_names_the_middle_of_their_ids_and_their_payloads(page: Page, app: App) -> None:
    """Ids begin with the time and end with 1: before, 18 of 19 items of a tenant looked the same."""
    alike = app.tenant("shop", "alike")
    alike.enqueue("export", {"year": 2026}, item_id="export-7", delay=60)
    for number in range(10):
        alike.enqueue("export", {"number": number}, delay=60)
    dead_letter(app, "alike", "failed-7")
    page.goto("/tenant?app=shop&user=alike")
    names = page.locator("tbody th a").all_inner_texts()
    assert {"export-7", "failed-7"} <= set(names)
    assert len(set(names)) == len(names) == 12
    expect(page.locator("tbody").first).to_contain_text('{"number": 3}')
    page.goto("/dead-letters/items?app=shop&user=alike")
    expect(page.locator("article.card")).to_contain_text('{"order": "failed-7"}')


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_the_light_and_in_the_dark(browser: Browser, server: Server, scheme: str) -> None:
    with page_of(browser, server.url, color_scheme=scheme) as page:
        page.goto("/")
        ground, text, quiet = (
            page.evaluate(f"getComputedStyle(document.querySelector('{where}')).{what}")
            for where, what in (("body", "backgroundColor"), ("h1", "color"), (".tiles dt", "color"))
        )
        assert contrast(ground, text) > 10
        assert contrast(ground, quiet) > 4.5
        assert (luminance(ground) < 0.1) == (scheme == "dark")


def test_a_question_on_a_page_of_its_own_ignores_a_stray_key(page: Page) -> None:
    page.goto("/do/pause?kind=unmeant")
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Pause")).not_to_be_focused()
    assert page.get_by_role("status").count() == 0


def test_pages_and_buttons_work_without_scripts(browser: Browser, server: Server, app: App) -> None:
    dead_letter(app, "plain", "plain-1")
    with page_of(browser, server.url, java_script_enabled=False) as page:
        page.goto("/dead-letters/items?app=shop&user=plain")
        page.get_by_role("link", name="Retry", exact=True).click()
        page.get_by_role("button", name="Retry it").click()
        assert "Retried item" in page.get_by_role("status").inner_text()


def test_another_sites_form_changes_nothing_and_its_link_leads_to_no_button(
    browser: Browser, server: Server, app: App
) -> None:
    """A page of another origin posts our form's content in the visitor's browser, or links to our form."""
    target = f"{server.url}do/pause"

    class Elsewhere(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            fields = "<input name=kind value=victim><button>Win a prize</button>"
            link = f"<a href='{target}?kind=victim'>Win another</a>"
            self.wfile.write(f"<form method=post action={target}>{fields}</form>{link}".encode())

        def log_message(self, *_: object) -> None:
            pass

    other = ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere)
    threading.Thread(target=other.serve_forever, daemon=True).start()
    context = browser.new_context()
    try:
        page = context.new_page()
        for there in (page.get_by_role("button"), page.get_by_role("link")):
            page.goto(f"http://localhost:{other.server_address[1]}/")
            with page.expect_navigation() as navigated:
                there.click()
            answer = navigated.value
            assert answer is not None
            assert answer.status == 403
    finally:
        context.close()
        other.shutdown()
        other.server_close()
    assert "victim" not in [entry.audit_entry.to.get("kind") for entry in read_log(app.shards, entries_max=100)]


def luminance(colour: str) -> float:
    """The relative luminance of a colour such as `rgb(1, 2, 3)` (WCAG 2.1)."""
    channels = [int(each) / 255 for each in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    linear = [each / 12.92 if each <= 0.03928 else ((each + 0.055) / 1.055) ** 2.4 for each in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """The contrast ratio of two colours (WCAG 2.1)."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)
