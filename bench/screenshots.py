"""The dashboard's pages as pictures, of a shop that has been running for an hour: docs/dashboard/.

    python -m bench.screenshots [DIRECTORY]

A store is filled with an hour of work: waiting and delayed items, and dead letters. A fleet of threads runs some items,
and workflows up to their waits.
The system's Chromium opens the pages.
"""

import os
import random
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from math import pi, sin
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import Browser, sync_playwright

from bench.pages import served
from bench.report import say
from fairlead import (
    App,
    Config,
    ConsumerSettings,
    DeadLetterFilter,
    Operator,
    PermanentError,
    Retry,
    WorkflowContext,
    new_item,
)
from fairlead.actors.consumer import Consumer
from fairlead.actors.execution.job import Job
from fairlead.actors.runtime.actor_identity import Identity
from fairlead.fleet import open_for_actors
from fairlead.zones.layout import Tenant
from fairlead.zones.queue import dead_letters
from fairlead.zones.records import ItemRecord, decode
from fairlead.zones.reporting import rollups
from fairlead.zones.reporting.rollups import INTERVAL_US, KEPT_INTERVALS, KindRollup, Rollup, interval_of
from fairlead.zones.shard import Shard
from fairlead.zones.tenant_transaction import TenantTransaction
from fairlead.zones.transaction_runner import Attempt

ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
DESKTOP, PHONE = (1280, 900), (375, 812)
LONG = "workflow"  # The page that is shown to its end.
SETTLE_MS = 2_600  # One more part has been sent by then.
USERS = (
    "ada",
    "alan",
    "barbara",
    "dennis",
    "donald",
    "edsger",
    "frances",
    "grace",
    "ken",
    "leslie",
    "margaret",
    "tony",
)
SHARES = {"receipt": 0.5, "thumbnail": 0.3, "index": 0.2}
DELAYED = "shelf-4/index"  # The name of a delayed item.
SLOTS_PER_TRANSACTION = 30
SOME = random.Random(11)
TRACEBACK = """Traceback (most recent call last):
  File "/srv/shop/receipts.py", line 41, in send_receipt
    charge = payments.charge(order.card, order.total)
  File "/srv/shop/payments.py", line 118, in charge
    raise ValueError("{0}")
ValueError: {0}
"""


def take(directory: Path) -> None:
    """Write a picture of each page into a directory."""
    with TemporaryDirectory(prefix="shop-") as location:
        url = f"embedded:{location}/orders"
        app = App(config=Config(shards={"main": url}, consumer=ConsumerSettings(slots=12, workers=1, managers=1)))
        dead_letter_id = _fill(app)
        workflow_id = _begin_workflows(app)
        identity = Identity(os.urandom(8), "db1.example", os.getpid(), app.clock.now_us() - 5_000_000_000)
        running = Consumer(open_for_actors(app), identity)
        try:
            time.sleep(6)  # Until the workers have reported their status twice.
            with served(url) as address, _browser() as browser:
                _walk(browser, address, directory, dead_letter_id, workflow_id)
        finally:
            running.stop(drain=0)
            app.close()


def _walk(browser: Browser, address: str, directory: Path, dead_letter_id: str, workflow_id: str) -> None:
    item = f"/item?app=shop&user=grace&id={dead_letter_id}"
    workflow = f"/item?app=shop&user=ada&id={workflow_id}"
    desktop = {
        "overview": "/", "tenants": "/tenants", "tenant": "/tenant?app=shop&user=grace", "kinds": "/kinds",
        "kind": "/kind?kind=receipt", "running": "/running", "delayed": "/delayed", "periodic": "/periodic",
        "dead-letters": "/dead-letters", "dead-letter-items": "/dead-letters/items", "item": item,
        "tenants-found": "/tenants?find=shop/d",
        "workflows": "/workflows", "workflow": workflow,
        "search": f"/search?q={DELAYED}", "log": "/log",
        "question": "/do/retry?kind=receipt&many=1&back=/dead-letters",
    }  # fmt: skip
    _pictures(browser, address, directory, desktop, DESKTOP, "light", "")
    _pictures(
        browser, address, directory, {"overview": "/", "item": item, "workflow": workflow}, DESKTOP, "dark", "-dark"
    )
    phone = {"overview": "/", "tenants": "/tenants", "dead-letters": "/dead-letters", "kind": "/kind?kind=receipt"}
    _pictures(browser, address, directory, phone, PHONE, "light", "-phone")


def _pictures(
    browser: Browser,
    address: str,
    directory: Path,
    pages: dict[str, str],
    size: tuple[int, int],
    scheme: str,
    suffix: str,
) -> None:
    context = browser.new_context(
        base_url=address, viewport={"width": size[0], "height": size[1]}, locale="en-GB", timezone_id="UTC",
        color_scheme="dark" if scheme == "dark" else "light", reduced_motion="reduce",
    )  # fmt: skip
    page = context.new_page()
    for name, path in pages.items():
        page.goto(path)
        page.wait_for_timeout(SETTLE_MS)
        page.screenshot(path=directory / f"{name}{suffix}.png", full_page=name == LONG)
        say(f"{name}{suffix}.png")
    context.close()


@contextmanager
def _browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS)
        yield browser
        browser.close()


# --- A shop ---


def _fill(app: App) -> str:
    """Fill the store; return the id of a dead letter."""

    @app.handler("receipt", permanent=(ValueError,))
    @app.handler("thumbnail", permanent=(ValueError,))
    @app.handler("index", permanent=(ValueError,))
    def handle(job: Job) -> None:
        time.sleep(SOME.uniform(0.05, 0.4))
        if SOME.random() < 0.04:
            raise TimeoutError("the mail server did not answer within 10 s")

    for kind, every_s in (("nightly-report", 86_400), ("sweep-carts", 300), ("refresh-rates", 900)):
        app.every(every_s, kind=kind)(lambda job: None)

    @app.handler("import")
    def read_in(job: Job) -> None:
        """Report its progress."""
        for row in range(4_000 * job.payload["part"], 12_000):
            time.sleep(0.01)
            job.progress(row, 12_000, "rows of orders.csv")

    shard = app.shards["main"]
    first = interval_of(app.clock.now_us()) - KEPT_INTERVALS
    markers: list[bytes] = []
    for begin in range(first, first + KEPT_INTERVALS, SLOTS_PER_TRANSACTION):
        shard.transact(lambda attempt, begin=begin: _hour(attempt, shard, begin, first, markers))  # type: ignore[misc]
    shard.transact(lambda attempt: _forget(attempt, shard, markers))
    dead_letter_id = _add_dead_letters(app)
    app.operator = Operator("eve@office", "command line")
    app.retry_dead_letters(DeadLetterFilter(kind="thumbnail"))
    app.control.limit_tenant("shop", "tony", max_running=1)
    app.control.pause_tenant("shop", "edsger")
    app.control.limit_kind("thumbnail", per_s=8)
    app.control.set_weight("shop", "grace", weight=3)
    for part in (0, 1, 2):
        app.tenant("shop", USERS[part]).enqueue("import", {"part": part})
    for user in USERS:
        items = [new_item(_kind(), {"order": number}) for number in range(SOME.randrange(20, 400))]
        app.tenant("shop", user).enqueue_many(items)
        app.tenant("shop", user).enqueue("receipt", {"order": 7}, delay=SOME.randrange(60_000, 7_200_000) / 1000)
    app.tenant("shop", "grace").enqueue("index", {"shelf": 4}, delay=900, item_id=DELAYED)
    return dead_letter_id


def _begin_workflows(app: App) -> str:
    """Enqueue workflows: some wait, one is being undone. Return the id of one that waits for a signal."""

    def keep(tr: TenantTransaction, what: str) -> str:
        time.sleep(SOME.uniform(0.02, 0.2))
        tr.set((what,), b"done")
        return what

    def pay(key: str, order: int) -> dict[str, str]:
        time.sleep(0.7)
        return {"charge": f"ch_{order}"}

    def cannot(tr: TenantTransaction, what: str) -> None:
        raise ConnectionError("the carrier did not answer")

    def release(tr: TenantTransaction, what: str) -> None:
        tr.clear((what,))

    @app.handler("label")
    def label(job: Job) -> None:
        time.sleep(0.4)

    @app.workflow("checkout", version=2)
    def checkout(wf: WorkflowContext, order: int) -> None:
        wf.step(keep, "reserve", name="reserve", undo=release)
        wf.effect(pay, order)
        wf.call("label", {"order": order})
        wf.wait_for("approved", timeout=86_400)

    @app.workflow("return-goods", retry=Retry(attempts=9, backoff=1_800))
    def return_goods(wf: WorkflowContext, order: int) -> None:
        wf.step(keep, "book the carrier", name="book the carrier", undo=cannot)
        wf.step(keep, "refund", name="refund", undo=release)
        raise PermanentError(f"order {order} was returned before")

    @app.workflow("remind")
    def remind(wf: WorkflowContext, order: int) -> None:
        wf.sleep(3_600 * SOME.randrange(2, 48))

    for number, user in enumerate(("barbara", "dennis", "leslie")):
        app.tenant("shop", user).enqueue("checkout", {"order": 2042 + number}, priority=1)
        app.tenant("shop", user).enqueue("remind", {"order": 2042 + number}, priority=1)
    app.tenant("shop", "grace").enqueue("return-goods", {"order": 1931}, priority=1, item_id="return-1931")
    made = app.tenant("shop", "ada").enqueue("checkout", {"order": 2041}, priority=1, item_id="order-2041")
    return made.item_id.hex()


def _kind() -> str:
    return SOME.choices(list(SHARES), list(SHARES.values()))[0]


def _hour(attempt: Attempt, shard: Shard, begin: int, first: int, markers: list[bytes]) -> None:
    """Write the rollups of an hour: a wave of work with a flood in the middle that is worked off."""
    tr, zone = attempt.tr, shard.zone(Tenant("shop", "marker"))
    for interval in range(begin, begin + SLOTS_PER_TRANSACTION):
        at = (interval - first) / KEPT_INTERVALS
        flood = max(0.0, 1 - abs(at - 0.6) / 0.1)
        done = int(260 + 120 * sin(at * 4 * pi) + SOME.randrange(60) + 420 * min(1, 2 * flood))
        kinds = {
            kind: KindRollup(int(done * share), int(done * share * SOME.uniform(0.01, 0.05)), SOME.randrange(2), 0, 0,
                            int(done * share * 210_000))
            for kind, share in SHARES.items()
        }  # fmt: skip
        users = {user: int(done * 210_000 / (2 + number)) for number, user in enumerate(USERS)}
        waiting = int(180 + 90 * sin(at * 4 * pi) + 5_200 * flood)
        tr.set(zone.location.part.depth("receipt"), waiting.to_bytes(8, "little"))
        _forget(attempt, shard, markers)
        markers.append(attempt.new_id())
        age_us = int((1.2 + SOME.random() + 34 * flood) * 1e6)
        later_us = (interval + 2) * INTERVAL_US
        zone.enqueue(tr, new_item("marker"), item_id=markers[0], now_us=later_us - age_us)
        rollups.write(tr, b"a worker", interval, Rollup(kinds, {"shop": users}))
        rollups.sum_up(tr, shard.layout, now_us=later_us)
    tr.clear(zone.location.part.depth("receipt"))


def _forget(attempt: Attempt, shard: Shard, markers: list[bytes]) -> None:
    """Take away the item that stood for the oldest."""
    while markers:
        shard.zone(Tenant("shop", "marker")).complete(attempt.tr, markers.pop(), now_us=attempt.now_us)


def _add_dead_letters(app: App) -> str:
    """Add dead letters. Return the id of one."""
    shard, reasons = app.shards["main"], ("card {} was declined", "no such order", "the picture is no JPEG")
    for number in range(26):
        last = number == 25
        user, kind, reason = (
            ("grace", "receipt", reasons[0]) if last else (SOME.choice(USERS), _kind(), SOME.choice(reasons))
        )
        payload = {"order": 1906 + number, "to": f"{user}@example.com", "lines": [{"sku": "A-7", "count": 2}]}
        made = app.tenant("shop", user).enqueue(kind, payload, item_id=f"order-{1906 + number}/{kind}")
        shard.transact(
            partial(_add_dead_letter, shard=shard, user=user, item_id=made.item_id, reason=reason.format(4500 + number))
        )
    return made.item_id.hex()


def _add_dead_letter(attempt: Attempt, *, shard: Shard, user: str, item_id: bytes, reason: str) -> None:
    location = shard.layout.location(Tenant("shop", user), "queue")
    record = decode(ItemRecord, attempt.tr.get(location.keys.item(item_id)).value or b"")
    assert record is not None
    failed_us = attempt.now_us - SOME.randrange(3_000_000_000)
    record.error_count = 1
    record.enqueued_us, record.leased_us = failed_us - 2_400_000, failed_us - 800_000
    dead_letters.move_to_dead_letters(
        attempt.tr,
        location,
        item_id,
        record,
        reason="error",
        error=f"ValueError: {reason}",
        traceback=TRACEBACK.format(reason),
        now_us=failed_us,
    )


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/dashboard")
    target.mkdir(parents=True, exist_ok=True)
    take(target)
