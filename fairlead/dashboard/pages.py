"""The pages: of each, the template, and the values for it.

A page is a function of the application and the query. It reads each shard apart: the page reports a shard that cannot
be read, and shows the others.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from fairlead.app import App
from fairlead.audit_log import ITEM_ACTIONS, NOT_ENDED, merge_entries
from fairlead.dashboard.timeline import timeline
from fairlead.explanation import RETRY_HINT, Cause, Explanation
from fairlead.external_dead_letters import FoundInStore, find_in_store
from fairlead.index_changes import IndexChangeView, IndexView, read_types
from fairlead.moves import in_reading_order, read_moves
from fairlead.queries.activity import (
    SHOWN_MAX,
    RunningItem,
    busiest,
    chart_data,
    longest_running,
    read_activity,
    records_of,
    slot_count,
)
from fairlead.queries.dead_letter_groups import (
    DeadLetterGroup,
    DeadLetterGroups,
    merged_groups,
    read_groups,
    read_groups_in_store,
)
from fairlead.queries.enqueued_items import places_of_items
from fairlead.queries.external_items import read_item_in_store
from fairlead.queries.external_tenants import QueuesInStore, read_tenant_in_store
from fairlead.queries.items import ItemDetails, read_item
from fairlead.queries.kinds import kind_summary, kinds_of
from fairlead.queries.per_shard import ShardResult, query_each_shard, query_each_store
from fairlead.queries.periodic import by_next_tick, read_periods
from fairlead.queries.queues import DELAYED_MAX, QUEUES_OF_TENANT_MAX, WaitingTenants, delayed_items, waiting_tenants
from fairlead.queries.queues_in_stores import query_delayed, query_depths, tenants_everywhere
from fairlead.queries.summary import all_activity, summarize
from fairlead.queries.tenants import SCANNED_PER_PAGE_MAX, find_dead_letters, read_tenant, search_tenants
from fairlead.queries.workflows import WorkflowState, find_workflows, first_workflows
from fairlead.recorded_steps import read_steps
from fairlead.shards import StoreMissing
from fairlead.status import COUNTED_MAX
from fairlead.tenant_database import TenantDatabase, checked_id
from fairlead.views import keys_of
from fairlead.zones.engines import StoreError
from fairlead.zones.errors import BadArgument, ItemGone, ShardRefused
from fairlead.zones.external.inspection import InspectedStore
from fairlead.zones.external.names import Queue, check_zone_name
from fairlead.zones.layout import DEFAULT_ZONE, Tenant, check_name, check_zone, named_tenant
from fairlead.zones.queue.dead_letter_search import DeadLetterFilter
from fairlead.zones.reporting import audit_log
from fairlead.zones.shard import Shard

ROWS_MAX = 200
TENANTS_PER_PAGE = 50
DEAD_LETTERS_PER_PAGE = 50
WORKFLOWS_PER_PAGE = 50
AUDIT_ENTRIES_PER_PAGE = 200
TENANTS_FOUND_MAX = 50
TENANTS_OF_KIND_MAX = 50
GROUPS_OF_KIND_MAX = 5

Query = Mapping[str, str]
Context = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Page:
    """A page. `nav`: its entry of the navigation; `show`: returns the values for the template."""

    path: str
    template: str
    nav: str
    show: Callable[[App, Query], Context]


class Chart(NamedTuple):
    """Numbers over time. `keys`: the names of the lines, if there are several; `numbers`: times, then each line."""

    title: str
    keys: tuple[str, ...]
    numbers: tuple[Sequence[float | None], ...]


def overview(app: App, query: Query) -> Context:
    """Is it healthy?"""
    seen = summarize(app)
    drawn = chart_data(seen.activity, seen.now_us)
    attempts = (drawn.times_s, drawn.completed_per_s, drawn.retried_per_s, drawn.failed_per_s)
    return {
        "summary": seen,
        "seen": seen.per_shard,
        "charts": [
            Chart("Attempts per second", ("completed", "retried", "failed"), attempts),
            Chart("Items in queues", (), (drawn.times_s, drawn.waiting)),
            Chart("Oldest waits, seconds", (), (drawn.times_s, drawn.oldest_s)),
        ],
        "externals": seen.externals,
        "anybody": any(each.consumers for each in seen.statuses),
        "counted_max": COUNTED_MAX,
    }


def tenants(app: App, query: Query) -> Context:
    """Who is waiting? And which tenants have names that begin with a text?"""
    busy = {activity.shard: busiest(activity) for activity in all_activity(app)}
    used_us = {(name, tenant): run_us for name, some in busy.items() for tenant, run_us in some}
    by_time = query.get("sort") == "time"

    def query_shard(shard: Shard) -> WaitingTenants:
        more = [tenant for tenant, _ in busy.get(shard.name, ())]
        return waiting_tenants(shard, more=more, tenants_max=ROWS_MAX)

    seen = query_each_shard(app.shards, query_shard)
    found = [each.found for each in seen if each.found is not None]
    depths = query_depths(app.externals, found)
    rows = tenants_everywhere(found, depths, kind=None, now_us=app.clock.now_us())
    rows.sort(key=lambda row: (-used_us.get((row.shard, row.tenant), 0) if by_time else 0, -row.total, row.tenant))
    beyond = max(0, len(rows) - ROWS_MAX)
    rows = rows[:ROWS_MAX]
    page = min(_page(query), max(1, -(-len(rows) // TENANTS_PER_PAGE)))
    return {
        "seen": seen,
        "stores": depths,
        "rows": rows[(page - 1) * TENANTS_PER_PAGE : page * TENANTS_PER_PAGE],
        "page": page,
        "pages": -(-len(rows) // TENANTS_PER_PAGE),
        "used_us": used_us,
        "most": max((row.total for row in rows), default=0),
        "most_us": max(used_us.values(), default=0),
        "by_time": by_time,
        "queues": sum(each.queues for each in found),
        "whole": all(each.whole for each in found),
        "left_out": sum(each.left_out for each in found) + beyond,
        "of_tenant_max": QUEUES_OF_TENANT_MAX,
        "text": query.get("find", "").strip(),
        "found": _tenants_found(app, query.get("find", "").strip()),
        "now_us": app.clock.now_us(),
    }


def tenant(app: App, query: Query) -> Context:
    """One tenant's queues."""
    database = database_of(app, query)
    found = database.at_home(lambda shard: read_tenant(shard, database.tenant))
    stores: list[ShardResult[QueuesInStore]] = []
    if database.tenant.app:
        stores = query_each_store(
            app.externals, lambda store: read_tenant_in_store(store, database.tenant, now_us=found.now_us)
        )
    return {"found": found, "stores": stores}


def moves(app: App, query: Query) -> Context:
    """Which tenants move to other shards, how far are they, and what holds them up?"""
    seen = query_each_shard(app.shards, read_moves)
    rows = in_reading_order(view for each in seen for view in each.found or ())
    return {"seen": seen, "rows": rows[:ROWS_MAX], "whole": len(rows) <= ROWS_MAX, "now_us": app.clock.now_us()}


class IndexRow(NamedTuple):
    """One index of a type of records, and its last change."""

    type: str
    found_by: IndexView
    change: IndexChangeView | None


def records(app: App, query: Query) -> Context:
    """By which fields are records found, which indexes are being built or dropped, and how far is that?"""
    seen = read_types(app.shards)
    rows = [
        IndexRow(each.name, index, next((change for change in each.changes if change.field == index.field), None))
        for result in seen
        for each in result.found or ()
        for index in each.indexes
    ]
    rows.sort(key=lambda row: (row.change is None or not row.change.is_under_way, row.type, row.found_by.field))
    return {"seen": seen, "rows": rows[:ROWS_MAX], "whole": len(rows) <= ROWS_MAX, "now_us": app.clock.now_us()}


def kinds(app: App, query: Query) -> Context:
    """What kinds of work are there, which consumers serve them, and what holds them back?"""
    seen = summarize(app)
    return {"seen": seen.per_shard, "rows": kinds_of(seen.statuses, seen.activity, seen.now_us, seen.externals)}


def kind(app: App, query: Query) -> Context:
    """How is one kind doing, and whose items wait?"""
    name = check_name("kind", query.get("kind", ""))
    seen = summarize(app)
    drawn = chart_data(seen.activity, seen.now_us, kind=name)
    busy = {activity.shard: [tenant for tenant, _ in busiest(activity)] for activity in seen.activity}
    waiting = query_each_shard(
        app.shards,
        lambda shard: waiting_tenants(shard, more=busy.get(shard.name, ()), kind=name, tenants_max=TENANTS_OF_KIND_MAX),
    )
    found = [each.found for each in waiting if each.found is not None]
    depths = query_depths(app.externals, found)
    rows = tenants_everywhere(found, depths, kind=name, now_us=seen.now_us)
    rows.sort(key=lambda row: (-row.waiting[name], row.tenant))
    dead = _dead_letter_groups(app, DeadLetterFilter(kind=name))
    periods = query_each_shard(app.shards, read_periods)
    running = [each for each in longest_running(seen.activity) if each.item.kind == name]
    return {
        "kind": name,
        "seen": seen.per_shard,
        "row": kind_summary(name, seen.statuses, seen.activity, seen.now_us, seen.externals),
        "charts": [
            Chart(
                "Attempts per second",
                ("completed", "retried", "failed"),
                (drawn.times_s, drawn.completed_per_s, drawn.retried_per_s, drawn.failed_per_s),
            ),
            Chart("Items in queues", (), (drawn.times_s, drawn.waiting)),
        ],
        "tenants": rows[:TENANTS_OF_KIND_MAX],
        "depths": depths,
        "most": max((row.waiting[name] for row in rows), default=0),
        "queues": sum(each.queues for each in found),
        "whole": all(each.whole for each in found),
        "left_out": max(0, len(rows) - TENANTS_OF_KIND_MAX) + sum(each.left_out for each in found),
        "groups": dead.groups[:GROUPS_OF_KIND_MAX],
        "group_count": len(dead.groups),
        "scanned": dead.scanned,
        "groups_whole": dead.whole,
        "stores": dead.stores,
        "periods": [period for each in periods if each.found for period in each.found.periods if period.kind == name],
        "running": len(running),
        "consumers": [
            (each.name, one)
            for each in seen.statuses
            for one in each.consumers
            if one.live and name in one.record.kinds
        ],
        "now_us": seen.now_us,
    }


def periodic(app: App, query: Query) -> Context:
    """What ticks, and when does it tick next?"""
    seen = query_each_shard(app.shards, read_periods)
    found = [each.found for each in seen if each.found is not None]
    return {
        "seen": seen,
        "rows": by_next_tick(found)[:ROWS_MAX],
        "whole": all(each.whole for each in found) and sum(len(each.periods) for each in found) <= ROWS_MAX,
        "now_us": app.clock.now_us(),
    }


def running(app: App, query: Query) -> Context:
    """What runs now, where, and since when?"""
    seen = query_each_shard(app.shards, read_activity)
    found = [each.found for each in seen if each.found is not None]
    rows: list[RunningItem] = longest_running(found)
    now_us = app.clock.now_us()
    return {
        "seen": seen,
        "rows": rows,
        "records": records_of(app.shards, app.externals, rows, now_us=now_us),
        "running": sum(activity.running for activity in found),
        "whole": sum(activity.running for activity in found) <= len(rows) < SHOWN_MAX,
        "slots": slot_count(found),
        "now_us": now_us,
    }


def delayed(app: App, query: Query) -> Context:
    """Which items are delayed?"""
    seen = query_each_shard(app.shards, delayed_items)
    on_shards = [each.found for each in seen if each.found is not None]
    stores = query_delayed(app.externals, on_shards, now_us=app.clock.now_us())
    found = on_shards + [each.found for each in stores if each.found is not None]
    rows = sorted((item for each in found for item in each.items), key=lambda each: (each.record.vesting_us, each.id))
    return {
        "seen": seen,
        "stores": stores,
        "rows": rows[:DELAYED_MAX],
        "whole": all(each.whole for each in found) and len(rows) <= DELAYED_MAX,
        "now_us": app.clock.now_us(),
    }


def dead_letters(app: App, query: Query) -> Context:
    """What failed for good, grouped by kind and error?"""
    criteria = filter_of(query)
    found = _dead_letter_groups(app, criteria)
    groups, stores_whole = found.groups, all(each.found is None or each.found.whole for each in found.stores)
    return {
        "seen": found.shards,
        "stores": found.stores,
        "criteria": criteria,
        "query": _filter_query(query),
        "groups": groups[:ROWS_MAX],
        "any": bool(groups) or not found.whole or not stores_whole,
        "items": sum(each.count for each in groups),
        "scanned": found.scanned,
        "whole": found.whole and len(groups) <= ROWS_MAX,
        "now_us": app.clock.now_us(),
    }


class _Groups(NamedTuple):
    """Dead letters in groups. `scanned`, `whole`: how many were read on shards, and whether that is all there."""

    groups: list[DeadLetterGroup]
    scanned: int
    whole: bool
    shards: list[ShardResult[DeadLetterGroups]]
    stores: list[ShardResult[DeadLetterGroups]]


def _dead_letter_groups(app: App, criteria: DeadLetterFilter) -> _Groups:
    """Read the dead letters that match; the groups of shards and external stores are merged."""
    shards = query_each_shard(app.shards, lambda shard: read_groups(shard, criteria), only=criteria.shard)
    stores: list[ShardResult[DeadLetterGroups]] = []
    if criteria.shard is None:
        read = partial(read_groups_in_store, criteria=criteria, now_us=app.clock.now_us())
        stores = query_each_store(app.externals, read)
    on_shards = [each.found for each in shards if each.found is not None]
    groups = merged_groups(each.found for each in [*shards, *stores] if each.found is not None)
    scanned, whole = sum(each.scanned for each in on_shards), all(each.whole for each in on_shards)
    return _Groups(groups, scanned, whole, shards, stores)


def dead_letter_items(app: App, query: Query) -> Context:
    """Which items failed for good, and can they run again?"""
    criteria = filter_of(query)
    from_key = _cursors(query)

    def query_shard(shard: Shard) -> Any:
        return find_dead_letters(shard, criteria, items_max=DEAD_LETTERS_PER_PAGE, next_key=from_key.get(shard.name))

    seen = query_each_shard(app.shards, query_shard, only=next(iter(from_key), criteria.shard))
    stores: list[ShardResult[FoundInStore]] = []
    if not from_key and criteria.shard is None:
        stores = query_each_store(app.externals, partial(_dead_letters_in_store, app, criteria))
    in_shards = any(each.found is not None and (each.found.items or each.found.next_key) for each in seen)
    return {
        "seen": seen,
        "stores": stores,
        "home_name": app.shards.home_name,
        "criteria": criteria,
        "query": _filter_query(query),
        "earlier": bool(from_key),
        "any": in_shards
        or any(each.found is not None and (each.found.items or not each.found.whole) for each in stores),
        "now_us": app.clock.now_us(),
    }


def _dead_letters_in_store(app: App, criteria: DeadLetterFilter, store: InspectedStore) -> FoundInStore:
    return find_in_store(
        store,
        criteria,
        items_max=DEAD_LETTERS_PER_PAGE,
        scanned_max=SCANNED_PER_PAGE_MAX,
        now_us=app.clock.now_us(),
    )


def workflows(app: App, query: Query) -> Context:
    """Which workflows have begun, and what do they wait for?"""
    state = _workflow_state(query)
    zone = query.get("zone") or None
    criteria = filter_of(query)._replace(zone=None if zone is None else check_zone(zone))
    criteria = criteria._replace(error=None, signature=None)
    is_dead = state is WorkflowState.DEAD
    from_key = _cursors(query)
    page = pages = 1
    if is_dead or criteria.tenant is not None:
        only = next(iter(from_key), criteria.shard)
        if only is None and isinstance(criteria.tenant, Tenant) and criteria.tenant.app:
            only = _home_name(app, criteria.tenant)
        seen = query_each_shard(
            app.shards,
            lambda shard: find_workflows(
                shard, criteria, state, rows_max=WORKFLOWS_PER_PAGE, next_key=from_key.get(shard.name)
            ),
            only=only,
        )
        rows = [(each.shard, row) for each in seen if each.found is not None for row in each.found.rows]
    else:
        seen = query_each_shard(app.shards, lambda shard: first_workflows(shard, criteria, state), only=criteria.shard)
        rows = [(each.shard, row) for each in seen if each.found is not None for row in each.found.rows]
        rows.sort(key=lambda row: (row[1].record.vesting_us, row[1].id))
        pages = max(1, -(-len(rows) // WORKFLOWS_PER_PAGE))
        page = min(_page(query), pages)
        rows = rows[(page - 1) * WORKFLOWS_PER_PAGE : page * WORKFLOWS_PER_PAGE]
    found = [each.found for each in seen if each.found is not None]
    return {
        "seen": seen,
        "criteria": criteria,
        "query": {key: query[key] for key in WORKFLOW_FILTER_KEYS if query.get(key)},
        "state": state,
        "states": list(WorkflowState),
        "rows": rows,
        "page": page,
        "pages": pages,
        "next": {each.shard: each.found.next_key for each in seen if each.found is not None and each.found.next_key},
        "continued": bool(from_key),
        "scanned": sum(each.scanned for each in found),
        "whole": all(each.whole for each in found),
        "is_dead": is_dead,
        "now_us": app.clock.now_us(),
    }


def item(app: App, query: Query) -> Context:
    """Why is this one not running?"""
    database = database_of(app, query)
    item_id = id_of(query.get("id", ""))
    store, zone = query.get("store") or None, query.get("zone") or DEFAULT_ZONE
    read = partial(_read_item, app, database, store, zone, item_id)
    shard, found = database.at_home(lambda shard: (shard, read(shard)))
    run = None
    if found.stored is not None and found.stored.keeps_run:
        with suppress(ItemGone):  # It has ended since.
            run = read_steps(app.shards, shard, database.tenant, zone, item_id, externals=app.externals, pages_max=1)
    steps = None if run is None else timeline(run, _page(query))
    parent = None if found.stored is None else found.stored.parent
    return {
        "found": found,
        "given": None if found.stored is None else found.stored.given_id,
        "keys": {} if found.stored is None else keys_of(found.stored),
        "run": run,
        "steps": steps,
        "items": {} if run is None or steps is None else places_of_items(app.shards, run, steps.steps),
        "parent": parent,
        "parent_tenant": None if parent is None else Tenant(parent.app, parent.user),
        "retry_hint": RETRY_HINT,
        "tenant": database.tenant,
        "shard": shard.name,
        "store": store,
        "zone": zone,
        "id": item_id,
    }


def _read_item(
    app: App, database: TenantDatabase, store: str | None, zone: str, item_id: bytes, shard: Shard
) -> ItemDetails:
    """Return an item of a tenant's shard, or of an external store."""
    if store is None:
        return read_item(shard, database.tenant, check_zone(zone), item_id, shards=app.shards, stores=app.externals)
    queue = Queue(database.external(store).tenant, check_zone_name(zone))
    return read_item_in_store(app.shards, shard, app.externals, store, queue, item_id)


def search(app: App, query: Query) -> Context:
    """Find an item by its id or name, or tenants by the beginning of their names."""
    text, app_name, user = (query.get(key, "").strip() for key in ("q", "app", "user"))
    explanation: Explanation | None = None
    named = False
    owner = named_tenant(app_name, user) if app_name and user else None
    if text:
        for item_id in ids_typed(text):
            named = item_id == checked_id(text)
            typed = text if named else item_id  # An external store forms ids of names in its own way.
            explanation = app.explain(typed) if owner is None else app.tenant(*owner).explain(typed)
            if explanation.cause not in (Cause.NEVER_SEEN, Cause.NOT_FOUND):
                break
    return {
        "text": text,
        "app_name": app_name,
        "user": user,
        "explanation": explanation,
        "named": named,
        "retry_hint": RETRY_HINT,
        "owner": owner,
        "found": _tenants_found(app, text),
    }


def log(app: App, query: Query) -> Context:
    """What operators have done."""
    seen = query_each_shard(app.shards, _latest_audit_entries)
    by_shard = {each.shard: each.found for each in seen if each.found is not None}
    rows = merge_entries(by_shard)[:AUDIT_ENTRIES_PER_PAGE]
    return {
        "seen": seen,
        "rows": rows,
        "not_ended": NOT_ENDED,
        "item_actions": ITEM_ACTIONS,
        "entries_max": AUDIT_ENTRIES_PER_PAGE,
        "now_us": app.clock.now_us(),
    }


PAGES = {
    page.path: page
    for page in (
        Page("/", "overview.html", "overview", overview),
        Page("/tenants", "tenants.html", "tenants", tenants),
        Page("/tenant", "tenant.html", "tenants", tenant),
        Page("/kinds", "kinds.html", "kinds", kinds),
        Page("/running", "running.html", "running", running),
        Page("/delayed", "delayed.html", "delayed", delayed),
        Page("/kind", "kind.html", "kinds", kind),
        Page("/workflows", "workflows.html", "workflows", workflows),
        Page("/periodic", "periodic.html", "periodic", periodic),
        Page("/moves", "moves.html", "moves", moves),
        Page("/records", "records.html", "records", records),
        Page("/dead-letters", "dead_letters.html", "dead-letters", dead_letters),
        Page("/dead-letters/items", "dead_letter_items.html", "dead-letters", dead_letter_items),
        Page("/item", "item.html", "", item),
        Page("/search", "search.html", "", search),
        Page("/log", "log.html", "log", log),
    )
}


# --- The parts of a query ---

WORKFLOW_FILTER_KEYS = ("kind", "app", "user", "local", "shard", "zone")
FILTER_KEYS = ("kind", "app", "user", "local", "shard", "error", "signature")


def database_of(app: App, query: Query) -> TenantDatabase:
    """Return the tenant, or the local items, that a query names. `app` alone may be `APP/USER`.

    Raises:
      BadArgument, UnknownShard: the query names no tenant, or no shard that exists.
    """
    if query.get("local"):
        return app.local(query["local"], shard=query.get("shard") or None)
    return app.tenant(query.get("app", ""), query.get("user") or None)


def _home_name(app: App, tenant: Tenant) -> str:
    """Return the name of the shard where a tenant lives; if that cannot be read, where the tenant was last found."""
    with suppress(StoreError, StoreMissing, ShardRefused, *app.store_errors()):
        return app.shards.find(tenant).name
    return app.shards.home_name(tenant)


def filter_of(query: Query) -> DeadLetterFilter:
    """Return which dead letters a query selects.

    Raises:
      BadArgument: the query names a user without an app, or an impossible name.
    """
    tenant = None
    app_name, user = query.get("app"), query.get("user")
    if query.get("local"):
        tenant = Tenant("", query["local"])
    elif user:
        tenant = named_tenant(app_name or "", user)
    return DeadLetterFilter(
        kind=query.get("kind") or None,
        tenant=tenant,
        error=query.get("error") or None,
        shard=query.get("shard") or None,
        signature=query.get("signature") or None,
        app=check_name("app", app_name) if app_name and tenant is None else None,
    )


def ids_typed(text: str) -> list[bytes]:
    """Return the ids that a text may mean: an id of 32 hexadecimal digits, and the name of an item."""
    ids = [checked_id(text)]
    if len(text) == 32 and all(each in "0123456789abcdefABCDEF" for each in text):
        ids.insert(0, bytes.fromhex(text))
    return ids


def id_of(text: str) -> bytes:
    """Return the id in a link.

    Raises:
      ItemGone: the text is no id.
    """
    try:
        item_id = bytes.fromhex(text)
    except ValueError:
        raise ItemGone(item=text) from None
    return checked_id(item_id)


def _filter_query(query: Query) -> dict[str, str]:
    """Return the part of a query that filters dead letters, for links to the same."""
    return {key: value for key, value in query.items() if value and key in FILTER_KEYS}


def _workflow_state(query: Query) -> WorkflowState | None:
    """Return the state that a list of workflows is restricted to; None: all but dead letters.

    Raises:
      BadArgument: there is no such state.
    """
    given = query.get("state")
    if not given:
        return None
    try:
        return WorkflowState(given)
    except ValueError:
        allowed = ", ".join(each.value for each in WorkflowState)
        raise BadArgument(argument="state", value=given, allowed=allowed) from None


def _tenants_found(app: App, text: str) -> Context | None:
    """Return the tenants whose names begin with a text; None without a text."""
    if not text:
        return None
    seen = query_each_shard(app.shards, lambda shard: search_tenants(shard, text, tenants_max=TENANTS_FOUND_MAX))
    found = [each.found for each in seen if each.found is not None]
    names = sorted({tenant for each in found for tenant in each.tenants})
    whole = all(each.whole for each in found) and len(names) <= TENANTS_FOUND_MAX
    return {"seen": seen, "tenants": names[:TENANTS_FOUND_MAX], "whole": whole}


def _page(query: Query) -> int:
    """Return the number of the page of a list; 1 is the first.

    Raises:
      BadArgument: it is no such number.
    """
    given = query.get("page") or "1"
    if not (given.isdecimal() and given.isascii() and len(given) < 4 and int(given) > 0):
        raise BadArgument(argument="page", value=given, allowed="1, 2, ...")
    return int(given)


def _cursors(query: Query) -> dict[str, bytes]:
    """Return where a list continues, by shard: `from=NAME:HEX`.

    Raises:
      BadArgument: `from` has another form.
    """
    given = query.get("from")
    if not given:
        return {}
    name, _, digits = given.rpartition(":")
    try:
        key = bytes.fromhex(digits)
    except ValueError:
        key = b""
    if not name or not key:
        raise BadArgument(argument="from", value=given, allowed="the value in a link to the next page")
    return {name: key}


def _latest_audit_entries(shard: Shard) -> list[Any]:
    return [
        each.audit_entry
        for each in shard.transact(lambda attempt: audit_log.latest(attempt.tr, entries_max=AUDIT_ENTRIES_PER_PAGE))
    ]
