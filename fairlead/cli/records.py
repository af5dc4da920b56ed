"""records: types of records and their indexes; records check, scrub, violations, add-index, drop-index."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import click

from fairlead.app import App
from fairlead.cli.errors import FOUND_FAULTS, STORE_UNUSABLE, interrupted
from fairlead.cli.output import example, json_option, progress, show, stacked, table
from fairlead.cli.store_options import StoreOptions, accepts_store_options
from fairlead.error_text import fields_of, message_of, remedy_of
from fairlead.formatting import ago, iso_time
from fairlead.index_changes import (
    RECORDS_PER_S,
    ChangePending,
    IndexChange,
    IndexChangeView,
    IndexView,
    NoBuild,
    NoSuchType,
    TypeView,
    Violation,
    cancel_build,
    read_types,
    read_violations,
)
from fairlead.queries.per_shard import ShardResult, query_each_shard
from fairlead.record_type import Records
from fairlead.records.on_shards.scrubbing import ShardScrub
from fairlead.zones.errors import QueueError

POLL_S = 0.5  # Between two updates of the bar.
BEGUN = "a running fleet carries it out; fairlead records shows how far it is"
GOES_ON = "goes on; fairlead records shows how far it is"  # After Ctrl-C.
MAY_GO_ON = "goes on if it has begun; fairlead records shows it"
NO_TYPES = "there are no records: a type is listed once a record of it is written"
VIOLATIONS_MAX = 1_000
FOUND = ("missing", "dangling", "dummies", "marked", "violations")


class TypeNotDeclared(QueueError):
    """The application does not declare records of this type, so the command cannot tell where they lie.

    Do: name the application that declares them when its module is imported, `--app MODULE:ATTRIBUTE`. `fairlead
    records` lists the types that are stored.
    """

    message = "the application declares no such records"


rate_option = click.option(
    "--rate", "per_s", type=click.IntRange(1, 10_000_000), default=RECORDS_PER_S, show_default=True, metavar="N",
    help="How many records to read at most, each second.",
)  # fmt: skip
wait_option = click.option("--wait", is_flag=True, help="Wait for the end. Ctrl-C ends the waiting, not the change.")


@click.group(invoke_without_command=True, epilog=example("fairlead records --app shop:app"))
@click.pass_context
@accepts_store_options
@json_option
def records(ctx: click.Context, store_options: StoreOptions) -> None:
    """List the types of records: by which fields they are found, and which indexes are being built or dropped."""
    if ctx.invoked_subcommand is not None:
        return
    app = store_options.app()
    seen = read_types(app.shards)
    types = [each for result in seen for each in result.found or ()]
    now_us = app.clock.now_us()
    show(
        {"types": [_type_answer(each) for each in types], "unread": [_unread(each) for each in seen if each.error]},
        lambda: _type_lines(types, seen, now_us),
    )
    if any(each.error for each in seen):
        ctx.exit(STORE_UNUSABLE)


@records.command(epilog=example("fairlead records check account --app shop:app"))
@click.argument("name", metavar="TYPE")
@rate_option
@accepts_store_options
@json_option
@click.pass_context
def check(ctx: click.Context, store_options: StoreOptions, name: str, per_s: int) -> None:
    """Count what writers that stopped have left among the records of TYPE; change nothing.

    Exits with 1 if there is something. Nobody depends on it: whoever wants a value collects garbage by itself.
    """
    _scrub(ctx, store_options, name, per_s, repair=False)


@records.command(epilog=example("fairlead records scrub account --app shop:app"))
@click.argument("name", metavar="TYPE")
@rate_option
@accepts_store_options
@json_option
@click.pass_context
def scrub(ctx: click.Context, store_options: StoreOptions, name: str, per_s: int) -> None:
    """Remove what writers that stopped have left among the records of TYPE, and write missing index records.

    Users may go on meanwhile. A value that two records have is counted, and stays with both until `resolve`.
    """
    _scrub(ctx, store_options, name, per_s, repair=True)


@records.command(epilog=example("fairlead records violations account --app shop:app"))
@click.argument("name", metavar="TYPE")
@accepts_store_options
@json_option
@click.pass_context
def violations(ctx: click.Context, store_options: StoreOptions, name: str) -> None:
    """List the records of TYPE that were left without a value of a unique field, because another record has it.

    They are those that the last build of an index has found. Give each another value, then run `add-index` once more.
    """
    app = store_options.app()
    _require_stored(app, name)
    seen = query_each_shard(
        app.shards, lambda shard: list(read_violations(shard, name, violations_max=VIOLATIONS_MAX + 1))
    )
    found = [each for result in seen for each in result.found or ()]
    shown = sorted(found, key=lambda each: (each.field, str(each.value), each.key))[:VIOLATIONS_MAX]
    show(
        {
            "violations": [each._asdict() for each in shown],
            "whole": len(found) == len(shown),
            "unread": [_unread(each) for each in seen if each.error],
        },
        lambda: _violation_lines(shown, seen, whole=len(found) == len(shown)),
    )
    if any(each.error for each in seen):
        ctx.exit(STORE_UNUSABLE)


@records.command("add-index", epilog=example("fairlead records add-index account phone --unique --app shop:app"))
@click.argument("name", metavar="TYPE")
@click.argument("field", metavar="FIELD")
@click.option("--unique", is_flag=True, help="No two records may have the same value.")
@click.option("--normalize", default="", metavar="WAY", help="How values are compared: casefold.")
@click.option("--cancel", is_flag=True, help="End a build that is under way: nothing is left of it.")
@wait_option
@rate_option
@accepts_store_options
@json_option
def add_index(
    store_options: StoreOptions,
    name: str,
    field: str,
    unique: bool,
    normalize: str,
    cancel: bool,
    wait: bool,
    per_s: int,
) -> None:
    """Build an index by which records of TYPE are found by FIELD, while they are read and written.

    The command begins the build, and a running fleet carries it out. If some records share a value, the index is not
    readable: `violations` lists them. After they are changed, the same command looks at them again.
    """
    if cancel and (unique or normalize or wait):
        raise click.UsageError("Give --cancel alone.")
    app = store_options.app()
    if cancel:
        if not cancel_build(app.shards, name, field, by=app.operator):
            raise NoBuild(type=name, field=field)
        show(
            {"cancelling": {"type": name, "field": field}}, lambda: [f"the build of {name}.{field} is being cancelled"]
        )
        return
    declared = _declared(app, name)
    _change(
        lambda: declared.add_index(field, unique=unique, normalize=normalize, records_per_s=per_s),
        f"the build of {name}.{field}",
        wait=wait,
    )


@records.command("drop-index", epilog=example("fairlead records drop-index account phone --app shop:app"))
@click.argument("name", metavar="TYPE")
@click.argument("field", metavar="FIELD")
@wait_option
@rate_option
@accepts_store_options
@json_option
def drop_index(store_options: StoreOptions, name: str, field: str, wait: bool, per_s: int) -> None:
    """Drop the index of FIELD of the records of TYPE, while they are read and written. The values stay."""
    declared = _declared(store_options.app(), name)
    _change(lambda: declared.drop_index(field, records_per_s=per_s), f"the drop of {name}.{field}", wait=wait)


def _require_stored(app: App, name: str) -> None:
    """See that there are records of a type, as far as the shards answer.

    Raises:
      NoSuchType: there are none, so a list of theirs would be empty for the wrong reason.
    """
    seen = read_types(app.shards)
    names = {each.name for result in seen for each in result.found or ()}
    if name not in names and not any(each.error for each in seen):
        raise NoSuchType(type=name, types=sorted(names))


def _declared(app: App, name: str) -> Records[Any]:
    declared = app.record_types.get(name)
    if declared is None:
        raise TypeNotDeclared(type=name, declared=sorted(app.record_types))
    return declared


def _scrub(ctx: click.Context, store_options: StoreOptions, name: str, per_s: int, *, repair: bool) -> None:
    declared = _declared(store_options.app(), name)
    with progress(f"reading {name}") as advance:
        found = declared.scrub(repair=repair, rows_per_s=per_s, progress=lambda rows: advance(rows, None))
    answer = [{field: getattr(each, field) for field in each.__struct_fields__} for each in found]
    show({"type": name, "repair": repair, "shards": answer}, lambda: _scrub_lines(found, repair=repair))
    if any(each.faults for each in found):
        ctx.exit(FOUND_FAULTS)


def _change(begin: Callable[[], IndexChange], what: str, *, wait: bool) -> None:
    begun = None
    with interrupted(lambda: f"{what} {GOES_ON if begun else MAY_GO_ON}"):
        begun = begin()
        view = _waited(begun) if wait else begun.progress()
    show({"change": _change_answer(view)}, lambda: _begun_lines(view))


def _waited(begun: IndexChange) -> IndexChangeView:
    """Return how a change ended, and show meanwhile on standard error how far it is."""
    with progress(f"{begun.type}.{begun.field}") as advance:
        while True:
            try:
                return begun.result(timeout=POLL_S)
            except ChangePending:
                advance(begun.progress().read, None)


def _begun_lines(view: IndexChangeView) -> Iterator[str]:
    doing = "dropping" if view.action == "drop" else "building"
    if view.is_under_way:
        yield f"{doing} the index {view.type}.{view.field}: {view.now}"
        yield BEGUN
        return
    yield f"the index {view.type}.{view.field} is {view.now}"
    if view.state == "pending":
        yield f"  Do: see fairlead records violations {view.type}, change the records, and add the index once more"


def _type_lines(types: Sequence[TypeView], seen: Sequence[ShardResult[Any]], now_us: int) -> Iterator[Any]:
    rows = [
        [each.name, index.field, "unique" if index.is_unique else "lookup", index.normalizer, _state(each, index)]
        for each in types
        for index in each.indexes
    ]
    if rows:
        yield stacked(("type", "field", "how", "compared", "state"), rows)
    else:
        yield NO_TYPES
    changes = [change for each in types for change in each.changes if change.is_under_way]
    if changes:
        yield stacked(
            ("type", "field", "change", "began", "now"),
            [[each.type, each.field, each.action, ago(round(each.began * 1e6), now_us), each.now] for each in changes],
        )
    yield from _unread_lines(seen)


def _state(of: TypeView, index: IndexView) -> str:
    failed = next((each.now for each in of.changes if each.field == index.field and each.state == "failed"), "")
    if index.state == "pending":
        return f"pending: {index.violations:,} violations"
    return failed if index.state == "dropped" and failed else index.state


def _scrub_lines(found: Sequence[ShardScrub], *, repair: bool) -> Iterator[Any]:
    columns = ("shard", "#records", "#index records", *(f"#{each}" for each in FOUND), "#repaired")
    yield table(
        columns,
        [
            [each.shard, each.records, each.index_records, *(getattr(each, kind) for kind in FOUND), each.repaired]
            for each in found
        ],
    )
    if not any(each.faults for each in found):
        yield "nothing is left of writers that stopped" if repair else "every record has its index records"
    elif not repair:
        yield "  Do: run fairlead records scrub, which repairs them"


def _violation_lines(found: Sequence[Violation], seen: Sequence[ShardResult[Any]], *, whole: bool) -> Iterator[Any]:
    if found:
        rows = [[each.field, each.key, each.shard, "hashed" if each.value is None else each.value] for each in found]
        yield stacked(("field", "record", "shard", "value"), rows)
    else:
        yield "no violations"
    if not whole:
        yield f"there are more: these are the first {VIOLATIONS_MAX:,}"
    yield from _unread_lines(seen)


def _unread_lines(seen: Sequence[ShardResult[Any]]) -> Iterator[str]:
    for each in seen:
        if each.error:
            yield f"{each.shard}: {each.sentence}"
            yield f"  Do: {each.remedy}"


def _unread(each: ShardResult[Any]) -> dict[str, Any]:
    assert each.error is not None
    described = {"error": message_of(each.error), "fields": fields_of(each.error), "do": remedy_of(each.error)}
    return {"shard": each.shard, "url": each.url, **described}


def _type_answer(each: TypeView) -> dict[str, Any]:
    return {
        "type": each.name,
        "home": each.home,
        "indexes": [index._asdict() for index in each.indexes],
        "changes": [_change_answer(change) for change in each.changes],
    }


def _change_answer(view: IndexChangeView) -> dict[str, Any]:
    return {
        "id": view.id.hex(),
        "type": view.type,
        "field": view.field,
        "action": view.action,
        "state": view.state,
        "stage": view.stage,
        "held_up": view.held_up,
        "read": view.read,
        "indexed": view.indexed,
        "violations": view.violations,
        "records_per_s": view.records_per_s,
        "cancel_requested": view.cancel_requested,
        "began": iso_time(round(view.began * 1e6)),
        "ended": None if view.ended is None else iso_time(round(view.ended * 1e6)),
        "reason": view.reason,
    }
