"""status, config: the stores and their consumers; the settings in force and their sources."""

from collections.abc import Iterator, Mapping, Sequence
from shlex import quote
from typing import Any

import click
from rich.table import Table

from fairlead import status as status_query
from fairlead.cli.errors import STORE_UNUSABLE
from fairlead.cli.external_stores import external_answer, external_lines
from fairlead.cli.output import example, json_option, show, table
from fairlead.cli.store_options import StoreOptions, accepts_store_options, settings_option
from fairlead.config import settings_of
from fairlead.error_text import fields_of, message_of, remedy_of, sentence_of
from fairlead.explanation import limit_in_words
from fairlead.formatting import ago, iso_time
from fairlead.queries.external_stores import read_externals
from fairlead.shards import Shards, StoreMissing
from fairlead.status import COUNTED_MAX, ShardStatus, slowest_loop
from fairlead.zones.engines import Stall, StoreError
from fairlead.zones.errors import ShardRefused
from fairlead.zones.records import Policy
from fairlead.zones.top_level.sessions import SessionRecord


@click.command(epilog=example("fairlead status --app shop:app"))
@accepts_store_options
@json_option
@click.pass_context
def status(ctx: click.Context, store_options: StoreOptions) -> None:
    """Show depth by kind, the oldest waiting item, dead letters and consumers of each store; changes nothing."""
    app = store_options.app()
    errors: dict[str, Exception] = {}
    found = [_read_status(app.shards, name, url, errors) for name, url in app.shards.urls.items()]
    answers = [_answer_error(each, errors[each.name]) if each.name in errors else _answer(each) for each in found]
    externals = read_externals(app.shards, app.externals)
    answer = {"shards": answers, "external_stores": [external_answer(each) for each in externals]}
    show(answer, lambda: [*_lines(found, errors), *external_lines(externals)])
    if errors or any(each.error is not None for each in externals):
        ctx.exit(STORE_UNUSABLE)


@click.command(epilog=example("fairlead config --set consumer.slots=32"))
@settings_option
@accepts_store_options
@json_option
def config(store_options: StoreOptions, settings: tuple[str, ...]) -> None:
    """Show every setting in force and where it came from: an argument, a variable, the file, or the default."""
    rows = settings_of(store_options.with_settings(settings).config())
    show(
        {row.key: {"value": row.value, "source": row.source} for row in rows},
        lambda: [table(("setting", "value", "from"), [row._replace(value=_as_typed(row.value)) for row in rows])],
    )


def _as_typed(value: Any) -> Any:
    """Return a setting as it is written in the file."""
    return str(value).lower() if isinstance(value, bool) else value


def _read_status(shards: Shards, name: str, url: str, errors: dict[str, Exception]) -> ShardStatus:
    """Return the status of a shard. The error of a shard that cannot be read goes into `errors`."""
    try:
        return status_query.read_status(shards[name], url)
    except (StoreError, StoreMissing, ShardRefused) as error:
        errors[name] = error
    except tuple(shards.errors()) as error:
        errors[name] = error
    return ShardStatus(name, url, error=sentence_of(errors[name]))


def _answer_error(each: ShardStatus, error: Exception) -> dict[str, Any]:
    described = {"error": message_of(error), "fields": fields_of(error), "do": remedy_of(error)}
    return {"shard": each.name, "url": each.url, **described}


def _answer(each: ShardStatus) -> dict[str, Any]:
    held_us = each.waits.blocked_oldest_us
    return {
        "shard": each.name,
        "url": each.url,
        "id": each.shard_id,
        "parts": each.part_count,
        "depth": each.depth,
        "depth_whole": each.depth_whole,
        "pointers": each.pointers,
        "pointers_vested": each.vested,
        "counted_max": COUNTED_MAX,
        "oldest": None if each.oldest_us is None else iso_time(each.oldest_us),
        "oldest_waits_s": None if each.oldest_us is None else (each.now_us - each.oldest_us) / 1e6,
        "oldest_at_least": not each.waits.whole,
        "held_back": {
            "items": each.waits.blocked_items,
            "queues": each.waits.blocked_queues,
            "oldest_waits_s": None if held_us is None else (each.now_us - held_us) / 1e6,
            "at_least": not each.waits.blocked_whole,
        },
        "dead_letters": each.dead_letters,
        "unreadable_queues": each.unreadable,
        "set_aside": each.quarantined,
        "moves": each.moves,
        "consumers": [
            {
                "id": present.consumer_id.hex(),
                "live": present.live,
                "host": present.record.host,
                "pid": present.record.pid,
                "kinds": present.record.kinds,
                "started": iso_time(present.record.started_us),
                "last_heartbeat": iso_time(present.record.heartbeat_us),
                "slowest_loop": _answer_loop(present.record),
            }
            for present in each.consumers
        ],
        "kinds_without_consumer": each.unserved,
        "paused": each.paused,
        "kind_policies": {
            kind: {**_answer_limits(policy), "updated": iso_time(policy.updated_us)}
            for kind, policy in each.kind_policies.items()
        },
        "tenant_policies": [
            {"tenant": tenant, **_answer_limits(policy), "weight": policy.weight}
            for tenant, policy in each.tenant_policies.items()
        ],
        "writers_wait_for": each.stall and _answer_stall(each.stall),
    }


def _answer_limits(policy: Policy) -> dict[str, Any]:
    return {"paused": policy.paused, "max_running": policy.max_running, "per_s": policy.per_s, "burst": policy.burst}


def _answer_loop(record: SessionRecord) -> dict[str, Any] | None:
    slowest = slowest_loop(record)
    return None if slowest is None else {"name": slowest[0], "no_progress_s": slowest[1] / 1e6}


def _answer_stall(stall: Stall) -> dict[str, Any]:
    return {"pid": stall.pid, "state": stall.state, "command": stall.command, "do": stall.remedy}


def _lines(found: Sequence[ShardStatus], errors: Mapping[str, Exception]) -> Iterator[str | Table]:
    columns = ("shard", "store", "#items", "#active zones", "#with work", "oldest waits", "#dead letters", "#consumers")
    yield table(columns, (_row(each) for each in found))
    for name, error in errors.items():
        yield f"{name}: {sentence_of(error)}"
        if remedy := remedy_of(error):
            yield f"  Do: {remedy}"
    for each in found:
        if each.stall:
            yield f"{each.name}: no process can write; the write lock is held by {each.stall.holder}"
            yield f"  Do: {each.stall.remedy}"
        yield from _damage(each)
        yield from _held_back(each)
        if each.moves:
            tenants = "tenant moves" if each.moves == 1 else "tenants move"
            yield f"{each.name}: {each.moves:,} {tenants} to other shards; fairlead moves lists them"
        yield from _policies(each)
    depths = [(each.name, kind, count, _served(each, kind)) for each in found for kind, count in each.depth.items()]
    for each in found:
        if not each.depth_whole:
            yield f"{each.name}: it has items of more kinds than are counted; these are the first by name"
    if depths:
        yield table(("shard", "kind", "#items", "consumers"), depths)
    present = [(each, one) for each in found for one in each.consumers]
    if present:
        yield table(("shard", "consumer", "host", "pid", "last heartbeat", "slowest loop", "kinds"), (
            (each.name, one.consumer_id.hex(), one.record.host, str(one.record.pid),
             ago(one.record.heartbeat_us, each.now_us) + ("" if one.live else ": dead"), _loop(one.record),
             ", ".join(one.record.kinds))
            for each, one in present
        ))  # fmt: skip


def _damage(each: ShardStatus) -> Iterator[str]:
    """Yield lines about damaged and quarantined records."""
    if each.unreadable:
        yield (
            f"{each.name}: {each.unreadable:,} queues hold records that cannot be read; consumers skip them; "
            "fairlead check names them"
        )
    if each.quarantined:
        yield f"{each.name}: {each.quarantined:,} damaged pairs were set aside; fairlead quarantine shows them"


def _held_back(each: ShardStatus) -> Iterator[str]:
    """Yield a line about items that a limit, a pause, or an unknown kind holds back."""
    held = each.waits
    if held.blocked_oldest_us is not None:
        more = "" if held.blocked_whole else "at least "
        oldest = ago(held.blocked_oldest_us, each.now_us).removesuffix(" ago")
        yield (
            f"{each.name}: {more}{held.blocked_items:,} items are held back by limits, pauses or unknown kinds; "
            f"the oldest waits {oldest}"
        )


def _policies(each: ShardStatus) -> Iterator[str]:
    """Yield the policies of a shard, and the commands that end pauses."""
    if each.paused:
        yield f"{each.name}: paused; nothing starts before fairlead resume --shard {quote(each.name)}"
    for kind, policy in each.kind_policies.items():
        if policy.paused:
            yield f"{each.name}: kind {kind} is paused until fairlead resume --kind {quote(kind)}"
        if policy.is_limited:
            yield f"{each.name}: kind {kind}: {limit_in_words(policy)}"
    for tenant, own in each.tenant_policies.items():
        if own.paused:
            yield f"{each.name}: tenant {tenant} is paused until fairlead resume --tenant {quote(str(tenant))}"
        if own.is_limited:
            yield f"{each.name}: tenant {tenant}: {limit_in_words(own)}"
        if own.weight != 1:
            yield f"{each.name}: tenant {tenant} has weight {own.weight:g}"


def _row(each: ShardStatus) -> tuple[object, ...]:
    if each.error:
        return each.name, each.url, "?", "?", "?", "?", "?", "?"
    more = "" if each.waits.whole else "at least "
    oldest = "" if each.oldest_us is None else more + ago(each.oldest_us, each.now_us).removesuffix(" ago")
    live = sum(one.live for one in each.consumers)
    counts = (_counted(each.pointers), _counted(each.vested))
    return each.name, each.url, sum(each.depth.values()), *counts, oldest, _counted(each.dead_letters), live


def _loop(record: SessionRecord) -> str:
    """Return a consumer's slowest loop, and for how many seconds it had made no progress at the last heartbeat."""
    slowest = slowest_loop(record)
    return "" if slowest is None else f"{slowest[0]}, {slowest[1] / 1e6:.1f} s"


def _served(each: ShardStatus, kind: str) -> str:
    if kind in each.unserved:
        return "no live consumer handles this kind"
    return str(sum(one.live and kind in one.record.kinds for one in each.consumers))


def _counted(count: int) -> str:
    return f"{count:,}" if count < COUNTED_MAX else f"{count:,} or more"
