"""What each button does: its confirmation question, and the action itself.

An action is made from a query, the same for the confirmation page and for the form that confirms. The audit log names
the operator who confirmed (`fairlead.zones.reporting.audit_log`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fairlead.app import App
from fairlead.audit_log import target_text
from fairlead.bulk_result import BulkResult, filter_as_target
from fairlead.dashboard.pages import Query, database_of, filter_of, id_of
from fairlead.dashboard.template_filters import owner, short_id
from fairlead.dead_letters import discard_all, retry_all
from fairlead.external_queues import ExternalQueues
from fairlead.index_changes import NoBuild, cancel_build
from fairlead.moves import NoMove, cancel_move
from fairlead.operator import Operator
from fairlead.tenant_database import TenantDatabase
from fairlead.zones.errors import BadArgument
from fairlead.zones.layout import DEFAULT_ZONE
from fairlead.zones.queue.dead_letter_search import DeadLetterFilter

BULK_US = 5_000_000  # A bulk operation runs so long for one click; then it reports how many are done.
COUNTED_MAX = 2_000  # Counted for the confirmation page; takes a tenth of a second.
SCANNED_MAX = 5_000


@dataclass(frozen=True, slots=True)
class Action:
    """Something that an operator can do.

    Attributes:
      question: the title of the confirmation page; `about` returns the text below.
      button: the label of the button that confirms.
      irreversible: whether the action cannot be undone.
      do: runs the action, and returns what was done, in words.
    """

    question: str
    about: Callable[[], str]
    button: str
    irreversible: bool
    do: Callable[[Operator], str]


def action_of(app: App, what: str, query: Query) -> Action:
    """Return the action that a link names.

    Raises:
      BadArgument: there is no such action.
    """
    if what in ("pause", "resume"):
        return _pause_or_resume(app, what, query)
    if what in ("retry", "discard", "cancel") and query.get("id"):
        return _item_action(app, what, query)
    if what in ("retry", "discard") and query.get("many"):
        return _bulk_action(app, what, query)
    if what == "cancel-move":
        return _cancel_move(app, query)
    if what == "cancel-index":
        return _cancel_index(app, query)
    allowed = "pause, resume, retry, discard, cancel, cancel-move, cancel-index"
    raise BadArgument(argument="action", value=what, allowed=allowed)


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
        about = f"Within a second, no more of its items start, {scope}. Running items continue; enqueueing continues."
    else:
        about = f"Its items start again, {scope}."

    def run(operator: Operator) -> str:
        do(operator)
        return f"{'Paused' if is_pause else 'Resumed'} {named}."

    return Action(f"{what.capitalize()} {named}?", lambda: about, what.capitalize(), False, run)


def _item_action(app: App, what: str, query: Query) -> Action:
    database = database_of(app, query)
    zone, item_id = query.get("zone") or DEFAULT_ZONE, id_of(query["id"])
    about = {
        "retry": "It goes back into its queue, due now, with all its attempts.",
        "discard": "It is deleted for good, with its payload and its traceback.",
        "cancel": "It is deleted from its queue. If it runs now, it cannot complete; effects so far remain."
        + ("" if query.get("store") else " The recorded steps of a workflow are undone first."),
    }[what]
    done = {"retry": "Retried", "discard": "Discarded", "cancel": "Cancelled"}[what]
    store = query.get("store")
    queues: TenantDatabase | ExternalQueues = database.external(store) if store else database
    operations: dict[str, Callable[..., object]] = {
        "retry": queues.retry_dead_letter,
        "discard": queues.discard_dead_letter,
        "cancel": queues.cancel,
    }

    def do(operator: Operator) -> str:
        operations[what](item_id, zone=zone, by=operator)
        return f"{done} item {item_id.hex()} of {owner(database.tenant)}."

    question = f"{what.capitalize()} item {short_id(item_id)} of {owner(database.tenant)}?"
    return Action(question, lambda: about, f"{what.capitalize()} it", what != "retry", do)


def _cancel_move(app: App, query: Query) -> Action:
    tenant = app.tenant(query.get("app", ""), query.get("user", "")).tenant
    about = (
        "The tenant stays where it is, and loses nothing. What was copied is cleared. A move whose last step is done"
    )
    about += " is not undone."

    def do(operator: Operator) -> str:
        if not cancel_move(app.shards, tenant, by=operator):
            raise NoMove(tenant=str(tenant))
        return f"The move of {owner(tenant)} is being taken back."

    return Action(f"Cancel the move of {owner(tenant)}?", lambda: about, "Cancel it", False, do)


def _cancel_index(app: App, query: Query) -> Action:
    type_name, field = query.get("type", ""), query.get("field", "")
    about = "Nothing is left of the index: its entries are cleared. A build whose last step has begun is not undone."

    def do(operator: Operator) -> str:
        if not cancel_build(app.shards, type_name, field, by=operator):
            raise NoBuild(type=type_name, field=field)
        return f"The build of the index {type_name}.{field} is being cancelled."

    return Action(f"Cancel the build of the index {type_name}.{field}?", lambda: about, "Cancel it", False, do)


def _bulk_action(app: App, what: str, query: Query) -> Action:
    criteria = filter_of(query)
    bulk_operation: Any = retry_all if what == "retry" else discard_all
    selected = (
        "all dead letters"
        if criteria == DeadLetterFilter()
        else f"all dead letters of {target_text(filter_as_target(criteria))}"
    )

    def few(result: BulkResult) -> bool:
        return result.count < COUNTED_MAX and result.scanned < SCANNED_MAX

    def about() -> str:
        would: BulkResult = bulk_operation(
            app.shards, criteria, app.operator, stores=app.externals, dry_run=True, go_on=few
        )
        more = "" if would.complete else " or more"
        by_kind = ", ".join(f"{number:,} {kind}" for kind, number in would.by_kind.most_common(8))
        return f"{_outcome(what, would.count, more)}{f': {by_kind}' if by_kind else ''}."

    done = "Retried" if what == "retry" else "Discarded"

    def do(operator: Operator) -> str:
        until_us = app.clock.now_us() + BULK_US

        def go_on(result: BulkResult) -> bool:
            return app.clock.now_us() < until_us

        result: BulkResult = bulk_operation(app.shards, criteria, operator, stores=app.externals, go_on=go_on)
        noun = "item" if result.count == 1 else "items"
        return f"{done} {result.count:,} {noun}.{'' if result.complete else ' There may be more: repeat the action.'}"

    return Action(f"{what.capitalize()} {selected}?", about, f"{what.capitalize()} them", what == "discard", do)


def _outcome(what: str, count: int, more: str) -> str:
    if what == "retry":
        goes = "item goes back into its queue" if count == 1 and not more else "items go back into their queues"
        return f"{count:,}{more} {goes}, due now"
    is_one = count == 1 and not more
    goes = "item is deleted for good, with its payload" if is_one else "items are deleted for good, with payloads"
    return f"{count:,}{more} {goes}"
