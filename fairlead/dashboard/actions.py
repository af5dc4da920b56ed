"""What each button does: what it is called, what it asks first, and the deed itself.

An action is made from a query, the same for the page that asks and for the form that says yes. Whoever says yes is
written down with it (`fairlead.zones.reporting.audit_log`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fairlead.app import App
from fairlead.audit_log import target_text
from fairlead.dashboard.pages import Query, database_of, filter_of, id_of
from fairlead.dashboard.template_filters import owner
from fairlead.dead_letters import BulkResult, discard_all, filter_as_target, retry_all
from fairlead.operator import Operator
from fairlead.zones.errors import BadArgument
from fairlead.zones.layout import DEFAULT_ZONE
from fairlead.zones.queue.dead_letter_search import DeadLetterFilter

BULK_US = 5_000_000  # How long a bulk goes on for one click; then it says how many are done, and that there are more.
COUNTED_MAX = 2_000  # Items, and some more graves, that are counted before it is asked: what a tenth of a second takes.
SCANNED_MAX = 5_000


@dataclass(frozen=True, slots=True)
class Action:
    """Something that an operator can do.

    `question`, and what `about` returns: what is asked first. `button`: what says yes. `irreversible`: whether it
    cannot be taken back. `do`: does it, and says what was done.
    """

    question: str
    about: Callable[[], str]
    button: str
    irreversible: bool
    do: Callable[[Operator], str]


def action_of(app: App, what: str, query: Query) -> Action:
    """Return the action that a link means.

    Raises:
      BadArgument: it means none.
    """
    if what in ("pause", "resume"):
        return _pause_or_resume(app, what, query)
    if what in ("revive", "discard", "cancel") and query.get("id"):
        return _item_action(app, what, query)
    if what in ("revive", "discard") and query.get("many"):
        return _bulk_action(app, what, query)
    raise BadArgument(argument="action", value=what, allowed="pause, resume, revive, discard, cancel")


def _pause_or_resume(app: App, what: str, query: Query) -> Action:
    is_pause = what == "pause"
    if query.get("kind"):
        kind = query["kind"]
        named, scope = f"kind {kind}", "of all tenants, on every shard"

        def do(operator: Operator) -> None:
            control = app.control.acting_as(operator)
            (control.pause_kind if is_pause else control.resume_kind)(kind)

    elif query.get("shard") and not query.get("app"):
        shard = query["shard"]
        named, scope = f"shard {shard}", "of all tenants and kinds"

        def do(operator: Operator) -> None:
            control = app.control.acting_as(operator)
            (control.pause_shard if is_pause else control.resume_shard)(shard)

    else:
        tenant = app.tenant(query.get("app", ""), query.get("user", "")).tenant
        named, scope = f"tenant {owner(tenant)}", "of all kinds"

        def do(operator: Operator) -> None:
            control = app.control.acting_as(operator)
            (control.pause_tenant if is_pause else control.resume_tenant)(*tenant)

    if is_pause:
        about = (
            f"No more of its items start, {scope}, within a second. What runs goes on to its end; enqueueing goes on."
        )
    else:
        about = f"Its items start again, {scope}, where they were."

    def run(operator: Operator) -> str:
        do(operator)
        return f"{'Paused' if is_pause else 'Resumed'} {named}."

    return Action(f"{what.capitalize()} {named}?", lambda: about, what.capitalize(), False, run)


def _item_action(app: App, what: str, query: Query) -> Action:
    database = database_of(app, query)
    zone, item_id = query.get("zone") or DEFAULT_ZONE, id_of(query["id"])
    about = {
        "revive": "It goes back into its queue, due now, its attempts forgotten.",
        "discard": "It is deleted for good, with its payload and its traceback.",
        "cancel": "It is deleted from its queue. If it runs now, its end is lost: what it has done so far stays done.",
    }[what]
    done = {"revive": "Revived", "discard": "Discarded", "cancel": "Cancelled"}[what]
    operation = {
        "revive": database.retry_dead_letter,
        "discard": database.discard_dead_letter,
        "cancel": database.cancel,
    }[what]

    def do(operator: Operator) -> str:
        operation(item_id, zone=zone, by=operator)
        return f"{done} item {item_id.hex()} of {owner(database.tenant)}."

    question = f"{what.capitalize()} item {item_id.hex()[:8]} of {owner(database.tenant)}?"
    return Action(question, lambda: about, f"{what.capitalize()} it", what != "revive", do)


def _bulk_action(app: App, what: str, query: Query) -> Action:
    criteria = filter_of(query)
    bulk_operation: Any = retry_all if what == "revive" else discard_all
    meant = (
        "all buried items"
        if criteria == DeadLetterFilter()
        else f"all buried items of {target_text(filter_as_target(criteria))}"
    )

    def few(result: BulkResult) -> bool:
        return result.count < COUNTED_MAX and result.scanned < SCANNED_MAX

    def about() -> str:
        would: BulkResult = bulk_operation(app.shards, criteria, app.operator, dry_run=True, go_on=few)
        more = "" if would.complete else " or more"
        by_kind = ", ".join(f"{number:,} {kind}" for kind, number in would.by_kind.most_common(8))
        becomes = "go back into their queues, due now" if what == "revive" else "are deleted for good, with payloads"
        return f"{would.count:,}{more} items {becomes}{f': {by_kind}' if by_kind else ''}."

    done = "Revived" if what == "revive" else "Discarded"

    def do(operator: Operator) -> str:
        until_us = app.clock.now_us() + BULK_US

        def go_on(result: BulkResult) -> bool:
            return app.clock.now_us() < until_us

        result: BulkResult = bulk_operation(app.shards, criteria, operator, go_on=go_on)
        return f"{done} {result.count:,} items.{'' if result.complete else ' There may be more: do it again.'}"

    return Action(f"{what.capitalize()} {meant}?", about, f"{what.capitalize()} them", what == "discard", do)
