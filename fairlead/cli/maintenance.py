"""check, backup, restore: maintenance of stores."""

import os
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import click
from rich.table import Table

from fairlead.app import App
from fairlead.cli.errors import FOUND_FAULTS
from fairlead.cli.external_stores import report_answer, report_lines
from fairlead.cli.output import example, json_option, progress, show, table
from fairlead.cli.store_options import StoreOptions, accepts_store_options
from fairlead.external_checks import ExternalReport, check_external
from fairlead.formatting import iso_time
from fairlead.shards import Shards
from fairlead.zones.errors import QueueError
from fairlead.zones.maintenance import backup as backups
from fairlead.zones.maintenance.backup import BackupInfo
from fairlead.zones.maintenance.backup.backup_file import check_digest, read_header
from fairlead.zones.maintenance.integrity import Finding, Report, check_homes, check_integrity
from fairlead.zones.maintenance.integrity.findings import KeptRun

FINDINGS_SHOWN = 100
RUNS_SHOWN = 5


class FileUnusable(QueueError):
    """A backup's file cannot be read or written; nothing was changed.

    Do: see `reason`; name another file, or free some space for this one.
    """

    message = "the file cannot be used"


@click.command(epilog=example("fairlead check --repair --store embedded:./data"))
@click.option("--repair", is_flag=True, help="Repair everything that can be repaired without losing an item.")
@click.option("--quarantine", is_flag=True, help="Set aside damaged records unchanged, and repair the rest.")
@accepts_store_options
@json_option
@click.pass_context
def check(ctx: click.Context, store_options: StoreOptions, repair: bool, quarantine: bool) -> None:
    """Verify every invariant of whole stores; exits with 1 if an invariant is broken and not repaired.

    Producers and consumers may run meanwhile. Records of a newer version are not changed. fairlead quarantine shows
    what was set aside. Steps of workflows on several shards are compared with their homes; for that, name all shards by
    --app or the configuration. Of external stores it checks the schema, the role's privileges, missing pointers, and
    what holds the server up.
    """
    app = store_options.app()
    consumer = app.config.consumer
    rest_ms = max(consumer.throttle_delay_ms, consumer.pause_recheck_ms)
    reports = {}
    for name, shard in app.shards.items():
        with progress(f"checking {name}") as advance:
            reports[name] = check_integrity(
                shard,
                repair=repair,
                quarantine=quarantine,
                rest_ms=rest_ms,
                progress=lambda keys: advance(keys, None),
            )
    check_homes(app.shards, reports, all_shards=not store_options.stores, repair=repair or quarantine)
    externals = _check_externals(app, repair=repair)
    healthy = all(report.healthy for report in reports.values()) and all(each.healthy for each in externals.values())
    answer = {
        "healthy": healthy,
        "shards": [_answer(name, report) for name, report in reports.items()],
        "external_stores": [report_answer(name, report) for name, report in externals.items()],
    }
    show(answer, lambda: [*_lines(reports, healthy), *report_lines(externals)])
    if not healthy:
        ctx.exit(FOUND_FAULTS)


def _check_externals(app: App, *, repair: bool) -> dict[str, ExternalReport]:
    reports = {}
    for name, store in app.externals.items():
        with progress(f"checking {name}") as advance:
            reports[name] = check_external(
                app.shards, name, store, repair=repair, progress=lambda queues: advance(queues, None)
            )
    return reports


@click.command(epilog=example("fairlead backup shop.backup --store embedded:./data"))
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--shard", metavar="NAME", help="Which shard, if there are several.")
@click.option("--force", is_flag=True, help="Replace FILE if it is a regular file.")
@accepts_store_options
@json_option
def backup(store_options: StoreOptions, path: Path, shard: str | None, force: bool) -> None:
    """Write a shard to FILE: tenants' data, items, handlers. Producers and consumers may run meanwhile.

    FILE appears when it is complete and on disk, or not at all. Only its owner may read it.
    """
    app = store_options.app()
    name = _one_shard(app.shards, shard)
    _refuse_what_is_there(path, force=force)
    opened = app.shards[name]
    with _new_file(path, force=force) as file, progress(f"backing up {name}") as advance:
        info = backups.backup(opened, file, progress=lambda pairs: advance(pairs, None))
    show(_backup_answer(name, path, info), lambda: _backup_lines("backed up", name, path, info))


@click.command(epilog=example("fairlead restore shop.backup --store embedded:./new"))
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--shard", metavar="NAME", help="Which shard, if there are several.")
@accepts_store_options
@json_option
def restore(store_options: StoreOptions, path: Path, shard: str | None) -> None:
    """Restore FILE into an empty store of any engine; leases are released, and items are due when they were.

    The shard keeps its id: do not run the original store and the restored one at the same time.
    """
    app = store_options.app(must_exist=False)
    name = _one_shard(app.shards, shard)
    try:
        file = path.open("rb")
    except OSError as error:
        raise FileUnusable(file=str(path), reason=str(error)) from None
    with file:
        read_header(file)  # The header and the checksum are checked before a store is made.
        check_digest(file)
        with closing(app.shards.store(name)) as db, progress(f"restoring {name}") as advance:
            info = backups.restore(
                db, file, clock=app.clock, random=app.random, progress=lambda pairs: advance(pairs, None)
            )
    show(_backup_answer(name, path, info), lambda: _backup_lines("restored", name, path, info))


def _one_shard(shards: Shards, name: str | None) -> str:
    names = list(shards)
    if name is None and len(names) > 1:
        raise click.UsageError(f"Name one of the shards with --shard: {', '.join(names)}.")
    return names[0] if name is None else name


def _refuse_what_is_there(path: Path, *, force: bool) -> None:
    """Raise FileUnusable unless `path` is free, or a regular file that `force` allows to replace."""
    if not os.path.lexists(path):
        return
    if not stat.S_ISREG(path.lstat().st_mode):
        reason = "it is a link, a directory or a device; only a regular file is replaced"
        raise FileUnusable(file=str(path), reason=reason, remedy="name another file")
    if not force:
        raise FileUnusable(file=str(path), reason="it exists", remedy="name another file, or add --force to replace it")


@contextmanager
def _new_file(path: Path, *, force: bool) -> Iterator[BinaryIO]:
    """Yield a file that becomes `path`, durable, when the body succeeds, and is deleted otherwise."""
    try:
        number, name = tempfile.mkstemp(prefix="fairlead-backup-", suffix=".partial", dir=path.absolute().parent)
    except OSError as error:
        raise FileUnusable(file=str(path), reason=str(error)) from None
    try:
        with os.fdopen(number, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        _refuse_what_is_there(path, force=force)  # A backup takes long: check again before the rename.
        Path(name).replace(path)
        directory = os.open(path.absolute().parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except OSError as error:
        raise FileUnusable(file=str(path), reason=str(error)) from None
    finally:
        Path(name).unlink(missing_ok=True)


def _backup_answer(name: str, path: Path, info: BackupInfo) -> dict[str, Any]:
    return {
        "shard": name,
        "file": str(path),
        "bytes": path.stat().st_size,
        "id": info.shard_id.hex(),
        "parts": info.part_count,
        "pairs": info.pairs,
        "one_version": info.one_version,
        "torn_tenants": info.torn,
        "began": iso_time(info.began_us),
        "ended": iso_time(info.ended_us),
    }


def _backup_lines(done: str, name: str, path: Path, info: BackupInfo) -> Iterator[str]:
    yield f"{done} {info.pairs:,} pairs of shard {name}, {path} ({path.stat().st_size:,} bytes)"
    if info.one_version:
        yield f"the shard as it was at one instant, {iso_time(info.began_us)} to {iso_time(info.ended_us)}"
    else:
        yield f"each tenant as it was at one instant, {iso_time(info.began_us)} to {iso_time(info.ended_us)}"
    if info.torn:
        yield f"except {info.torn:,} tenants that were too large to be read at once: repeat it when they write less"


def _answer(name: str, report: Report) -> dict[str, Any]:
    return {
        "shard": name,
        "healthy": report.healthy,
        "zones": report.zones,
        "items": report.items,
        "dead_letters": report.dead_letters,
        "pointers": report.pointers,
        "newer": report.newer,
        "unknown": report.unknown,
        "foreign": report.foreign,
        "unverified": report.unverified,
        "findings": [_finding_answer(finding) for finding in report.findings],
        "more_findings": report.more_findings,
        "without_home": [
            {"app": kept.tenant.app, "user": kept.tenant.user, "run": kept.run.hex()} for kept in report.without_home
        ],
    }


def _finding_answer(finding: Finding) -> dict[str, Any]:
    return {
        "what": finding.what,
        "app": finding.tenant and finding.tenant.app,
        "user": finding.tenant and finding.tenant.user,
        "zone": finding.zone,
        "item": finding.item_id and finding.item_id.hex(),
        "run": finding.run and finding.run.hex(),
        "key": finding.key.hex(),
        "repairable": finding.repairable,
        "repaired": finding.repaired,
        "damaged": finding.damaged,
        "set_aside": finding.set_aside,
        "remedy": finding.remedy,
    }


def _lines(reports: Mapping[str, Report], healthy: bool) -> Iterator[str | Table]:
    columns = ("shard", "#zones", "#items", "#dead letters", "#pointers", "#findings", "#done", "left alone")
    yield table(columns, (_row(name, report) for name, report in reports.items()))
    findings = [(name, finding) for name, report in reports.items() for finding in report.findings]
    if findings:
        shown = (_finding_row(name, finding) for name, finding in findings[:FINDINGS_SHOWN])
        yield table(("shard", "finding", "tenant", "zone", "item", "state"), shown)
    hidden = len(findings) - FINDINGS_SHOWN + sum(report.more_findings for report in reports.values())
    if hidden > 0:
        yield f"and {hidden:,} more; --json shows the first 10,000 of each shard"
    if healthy:
        yield "every invariant holds"
    left = [finding for _, finding in findings if not finding.resolved]
    yield from sorted({f"{finding.what}: {finding.remedy}" for finding in left if finding.remedy})
    for name, report in reports.items():
        yield from _without_home(name, report.without_home)
    if any(finding.repairable for finding in left):
        yield "fairlead check --repair repairs those that say so"
    if any(finding.damaged for finding in left):
        yield "fairlead check --quarantine sets aside damaged records; until then consumers skip them"


def _without_home(name: str, kept: Sequence[KeptRun]) -> Iterator[str]:
    if not kept:
        return
    shown = ", ".join(f"{each.tenant} run {each.run.hex()}" for each in kept[:RUNS_SHOWN])
    more = f", and {len(kept) - RUNS_SHOWN:,} more" if len(kept) > RUNS_SHOWN else ""
    yield (
        f"shard {name} keeps steps of {len(kept):,} workflows whose home is on no shard that was checked: "
        f"{shown}{more}. Check all shards together, with --app or the configuration, to see whether one knows them"
    )


def _row(name: str, report: Report) -> tuple[object, ...]:
    alone = {"newer": report.newer, "unknown": report.unknown, "moved": report.foreign, "unverified": report.unverified}
    left = ", ".join(f"{count:,} {word}" for word, count in alone.items() if count)
    over = sum(finding.resolved for finding in report.findings)
    count = len(report.findings) + report.more_findings
    return name, report.zones, report.items, report.dead_letters, report.pointers, count, over, left


def _finding_row(name: str, finding: Finding) -> tuple[object, ...]:
    tenant = "" if finding.tenant is None else str(finding.tenant)
    state = (
        "set aside" if finding.set_aside
        else "repaired" if finding.repaired
        else "--repair repairs it" if finding.repairable
        else "--quarantine sets it aside" if finding.damaged
        else "needs an operator"
    )  # fmt: skip
    run = "" if finding.run is None else f"run {finding.run.hex()}"
    item = run if finding.item_id is None else finding.item_id.hex()
    return name, finding.what, tenant, finding.zone or "", item, state
