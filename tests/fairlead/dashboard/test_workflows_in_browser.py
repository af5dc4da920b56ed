"""Workflows, as an operator with a browser sees them: a timeline that goes on by itself, in every width."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, Page, expect

import fairlead
from fairlead import App, Handle, PermanentError, WorkflowContext
from fairlead.testing import drain
from fairlead.zones.tenant_transaction import TenantTransaction
from tests.fairlead.dashboard.browsing import PHONE, page_of
from tests.fairlead.dashboard.serving import Server

MARKUP = "<script>alert('markup')</script><img src=x onerror=alert('markup')>\"'&lt;</script>"

# Where each bar begins and ends, in percent of its track, as the browser has drawn it.
DRAWN = """
    [...document.querySelectorAll(".bar-track")].map(track => {
        const [whole, bar] = [track, track.firstElementChild].map(each => each.getBoundingClientRect());
        return [100 * (bar.left - whole.left) / whole.width, 100 * (bar.right - whole.left) / whole.width];
    })
"""


def path_of(user: str, handle: Handle) -> str:
    return f"/item?app=shop&user={user}&id={handle.item_id.hex()}"


def keep(tr: TenantTransaction, what: str) -> str:
    tr.set((what,), b"kept")
    return what


def test_the_timeline_of_a_workflow_goes_on_without_a_reload(browser: Browser, server: Server, app: App) -> None:
    @app.workflow("checkout")
    def checkout(wf: WorkflowContext) -> None:
        wf.step(keep, "reserved", name="reserve")
        wf.wait_for("approved")
        wf.call("resize", {"width": 100})

    handle = app.tenant("shop", "live").enqueue("checkout", item_id="order-7")
    drain(app)
    with page_of(browser, server.url) as page:
        page.goto(path_of("live", handle))
        expect(page.locator(".steps tbody tr")).to_have_count(2)
        expect(page.locator("dd", has_text="signal approved")).to_be_visible()
        assert all(0 <= begin < end <= 100.5 for begin, end in page.evaluate(DRAWN))
        page.evaluate("window.stayed = true")
        handle.signal("approved", {"by": "bob"})
        drain(app)
        expect(page.locator(".steps tbody tr")).to_have_count(4)
        expect(page.locator(".steps tbody tr", has_text="wait_for approved")).to_contain_text('{"by": "bob"}')
        assert page.evaluate("window.stayed")
        assert len(page.evaluate(DRAWN)) == 4
        page.get_by_role("link", name="child").click()
        expect(page.locator("dd", has_text="in its step call resize")).to_be_visible()
        page.locator("dd", has_text="in its step call resize").get_by_role("link").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Item order-7")


def hostile(app: App, user: str) -> Handle:
    """Leave a workflow that is being undone, whose texts are full of markup and long words."""

    def undo(tr: TenantTransaction, what: str) -> None:
        if what != "pay":
            raise RuntimeError("w" * 300)

    @app.workflow(f"hostile {user}", retry=fairlead.Retry(attempts=9, backoff=600))
    def work(wf: WorkflowContext) -> None:
        for name in (MARKUP, "w" * 90, "pay"):
            wf.step(keep, name, name=name, undo=undo)
        raise PermanentError(MARKUP)

    handle: Handle = app.tenant("shop", user).enqueue(f"hostile {user}")
    drain(app, raise_errors=False)
    return handle


def test_steps_full_of_markup_are_shown_as_text(browser: Browser, server: Server, app: App) -> None:
    """`page_of` fails if a script ran, or a picture was requested."""
    handle = hostile(app, "hostile")
    with page_of(browser, server.url) as page:
        page.goto(path_of("hostile", handle))
        expect(page.locator(".steps th", has_text="<script>alert").first).to_be_visible()
        expect(page.locator("dd", has_text="<img src=x onerror=").first).to_be_visible()
        assert page.locator("img[src=x]").count() == 0


@pytest.mark.parametrize("width", [375, 760, 820, 1024, 1150, 1280, 1440])
def test_a_timeline_fits_every_window(browser: Browser, server: Server, app: App, width: int) -> None:
    handle = hostile(app, f"wide-{width}")
    with page_of(browser, server.url, viewport={**PHONE, "width": width}) as page:
        page.goto(path_of(f"wide-{width}", handle))
        assert_fits(page, width)
        assert min(page.evaluate("[...document.querySelectorAll('.bar-track')].map(each => each.clientWidth)")) >= 100


def assert_fits(page: Page, width: int) -> None:
    """Fail if the page, or a table in it, must be scrolled sideways."""
    expect(page.locator("#live")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    # Both widths are rounded separately.
    assert page.evaluate("(live => live.scrollWidth - live.clientWidth)(document.querySelector('#live'))") <= 1


# --- The list of workflows ---


def test_a_list_of_workflows_is_filtered_by_state_and_follows_a_signal(
    browser: Browser, server: Server, app: App
) -> None:
    @app.workflow("signed", keep_result=600)
    def signed(wf: WorkflowContext) -> None:
        wf.wait_for("approved")
        wf.sleep(3600)

    tenant = app.tenant("shop", "lister")
    handles = [tenant.enqueue("signed", item_id=f"contract-{number}") for number in range(2)]
    drain(app)
    with page_of(browser, server.url) as page:
        page.goto("/tenant?app=shop&user=lister")
        page.locator("main").get_by_role("link", name="Workflows", exact=True).click()
        expect(page.locator("tbody tr")).to_have_count(2)
        page.get_by_role("link", name="Waits for a signal").click()
        expect(page.locator("tbody tr")).to_have_count(2)
        page.wait_for_load_state()
        page.evaluate("window.stayed = true")
        handles[0].signal("approved")
        drain(app)
        expect(page.locator("tbody tr")).to_have_count(1)
        assert page.evaluate("window.stayed")
        page.get_by_role("link", name="Sleeping").click()
        expect(page.locator("tbody tr th")).to_have_text("contract-0")
        page.get_by_label("Kind").fill("other")
        page.get_by_role("button", name="Show", exact=True).click()
        expect(page.locator("#live")).to_contain_text("No workflows of this state match.")
        page.get_by_role("link", name="All", exact=True).click()
        page.get_by_role("link", name="contract-0").click()
        expect(page.locator(".steps tbody tr")).to_have_count(2)
        page.locator("main").get_by_role("link", name="Workflows", exact=True).click()
        expect(page.get_by_role("heading", name="Workflows", level=1)).to_be_visible()


@pytest.mark.parametrize("width", [375, 760, 820, 1024, 1150, 1280, 1440])
def test_the_list_of_workflows_fits_every_window(browser: Browser, server: Server, app: App, width: int) -> None:
    hostile(app, f"list-{width}")
    with page_of(browser, server.url, viewport={**PHONE, "width": width}) as page:
        for path in (
            f"/workflows?app=shop&user=list-{width}",
            "/workflows",
            "/workflows?state=dead+letter",
            "/delayed",
        ):
            page.goto(path)
            assert_fits(page, width)
