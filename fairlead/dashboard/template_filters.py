"""Filters of the templates: values as text. The templates escape the text."""

import json
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlencode

from fairlead.formatting import iso_time, json_ready, payload_text, printable, size, span
from fairlead.queries.workflows import WorkflowState, state_of
from fairlead.recorded_steps import StepView
from fairlead.views import progress_in_words
from fairlead.workflow_explanation import has_timeout
from fairlead.workflows.replay import shown
from fairlead.zones.errors import PayloadDamaged
from fairlead.zones.layout import Tenant
from fairlead.zones.queue.items import unpack_payload
from fairlead.zones.records import ItemRecord
from fairlead.zones.workflow.step_log import StepName

PAYLOAD_CHARACTERS = 4_000  # Of a payload on its item's page.
TEXT_CHARACTERS = 160  # Of an error in a table.
NAME_CHARACTERS = 40  # Of a given name in a table; its tooltip and the item's page show all of it.
LOCAL = "(local)"


def count(number: int, at_most: int | None = None) -> str:
    """Return a count; one that reached the limit of counting with a `+`."""
    return f"{number:,}+" if at_most is not None and number >= at_most else f"{number:,}"


def ago(time_us: int, now_us: int) -> str:
    """Return how long ago, or in how long."""
    return f"{span(now_us - time_us)} ago" if time_us <= now_us else f"in {span(time_us - now_us)}"


def minute(time_us: int) -> str:
    """Return a time to the minute, UTC; one beyond the calendar as a number of microseconds."""
    text = iso_time(time_us)
    return f"{text[:10]} {text[11:16]} UTC" if "T" in text else text


def owner(tenant: Tenant) -> str:
    """Return a tenant's name; for local items, the name of their kind."""
    return printable(str(tenant) if tenant.app else f"{LOCAL} {tenant.user}")


def payload(value: Any) -> str:
    """Return a payload as JSON, indented, cut to `PAYLOAD_CHARACTERS`."""
    text = json.dumps(json_ready(value), ensure_ascii=False, indent=2)
    if len(text) <= PAYLOAD_CHARACTERS:
        return text
    return f"{text[:PAYLOAD_CHARACTERS]}\n... {len(text) - PAYLOAD_CHARACTERS:,} characters more"


def short(text: str) -> str:
    """Return the first line of a text, cut to `TEXT_CHARACTERS`."""
    line = text.strip().partition("\n")[0]
    return line if len(line) <= TEXT_CHARACTERS else f"{line[:TEXT_CHARACTERS]}..."


def short_id(item_id: bytes) -> str:
    """Return the middle and the end of an id: most ids begin with the same time and end with 1.

    Items of one transaction differ only in the last digits.
    """
    return f"{item_id.hex()[8:16]}…{item_id.hex()[-4:]}"


def item_name(item_id: bytes, record: ItemRecord | None) -> str:
    """Return an item's name in a table: its given name, cut, else a part of its id."""
    given = None if record is None else record.given_id
    if given is None:
        return short_id(item_id)
    text = given_name(given)
    return text if len(text) <= NAME_CHARACTERS else f"{text[:NAME_CHARACTERS]}…"


def given_name(given: Any) -> str:
    """Return the name that an item was given, as text."""
    return printable(given if isinstance(given, str) else repr(given))


def preview(record: ItemRecord | None) -> str:
    """Return the beginning of an item's payload in one line; nothing if it is empty, or was not read."""
    if record is None or record.payload_bytes:
        return "" if record is None else f"{record.payload_bytes:,} bytes"
    try:
        value = unpack_payload(record.payload)
    except PayloadDamaged as error:
        return str(error)
    return "" if value is None else printable(payload_text(value))


def step_name(step: StepView) -> str:
    """Return the name of a step, and for the how manieth time it is one of that name."""
    return printable(shown(StepName(step.name, step.occurrence)))


def one_line(value: Any) -> str:
    """Return plain data in one line, cut."""
    return printable(payload_text(value))


def waits_as(record: ItemRecord, now_us: int) -> WorkflowState | None:
    """Return what a workflow in its queue waits for, if it waits; None: it does not, or is none."""
    state = state_of(record, None, is_dead=False, now_us=now_us)
    waits = state not in (WorkflowState.RUNNING, WorkflowState.DUE, WorkflowState.LATER)
    return state if record.keeps_run and waits else None


def sentence(text: str) -> str:
    """Return a text with a capital first letter."""
    return text[:1].upper() + text[1:]


def rate(per_s: float) -> str:
    """Return a rate with two significant digits."""
    return f"{per_s:,.0f}" if per_s >= 10 else f"{per_s:.1f}" if per_s >= 0.1 or not per_s else f"{per_s:.2f}"


def numbers(lines: Sequence[Sequence[float | None]]) -> str:
    """Return the lines of a chart as its script reads them."""
    return json.dumps(lines, separators=(",", ":"))


def chart_words(chart: Any) -> str:
    """Return a chart in words, for screen readers: of each line, the last known number and the highest."""
    lines = []
    for key, line in zip(chart.keys or ("",), chart.numbers[1:], strict=True):
        known = [number for number in line if number is not None]
        if known:
            lines.append(f"{key} {known[-1]:,g} now, {max(known):,g} at most".strip())
    return f"{chart.title}: {'; '.join(lines) or 'no data yet'}"


def link(path: str, /, **query: Any) -> str:
    """Return a path with a query, without parameters that are None or empty."""
    given = {key: value for key, value in query.items() if value not in (None, "")}
    return f"{path}?{urlencode(given)}" if given else path


def tenant_link(tenant: Tenant, shard: str) -> str:
    """Return the link to a tenant's page; for local items, it names their shard."""
    return link("/tenant", **tenant_query(tenant, shard))


def tenant_query(tenant: Tenant, shard: str) -> dict[str, str]:
    """Return the query that names a tenant; for local items, also their shard."""
    return {"app": tenant.app, "user": tenant.user} if tenant.app else {"local": tenant.user, "shard": shard}


def item_query(shard: str, tenant: Tenant, zone: str, item_id: bytes, store: str | None = None) -> dict[str, str]:
    """Return the query that names an item. `store`: the external store where it is; None: it is in a shard."""
    named = {**tenant_query(tenant, shard), "zone": zone, "id": item_id.hex()}
    return named if store is None else {**named, "store": store}


def item_link(shard: str, tenant: Tenant, zone: str, item_id: bytes, store: str | None = None) -> str:
    """Return the link to an item's page; see `item_query`."""
    return link("/item", **item_query(shard, tenant, zone, item_id, store))


FILTERS: dict[str, Callable[..., str]] = {
    "count": count,
    "span": span,
    "ago": ago,
    "when": iso_time,
    "minute": minute,
    "owner": owner,
    "payload": payload,
    "short": short,
    "short_id": short_id,
    "item_name": item_name,
    "given_name": given_name,
    "preview": preview,
    "step_name": step_name,
    "one_line": one_line,
    "printable": printable,
    "sentence": sentence,
    "size": size,
    "progress": progress_in_words,
    "rate": rate,
    "numbers": numbers,
    "chart_words": chart_words,
}
LINKS: dict[str, Callable[..., Any]] = {
    "link": link,
    "tenant_link": tenant_link,
    "item_link": item_link,
    "tenant_query": tenant_query,
    "item_query": item_query,
    "has_timeout": has_timeout,
    "waits_as": waits_as,
}
