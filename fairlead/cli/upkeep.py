"""check, backup, restore: the upkeep of stores."""

from collections.abc import Iterator, Mapping
from typing import Any

import click
from rich.table import Table

from fairlead.cli.failures import FOUND_FAULTS
from fairlead.cli.output import example, json_option, progress, show, table
from fairlead.cli.target import Target, target_options
from zones.audit import Finding, Report, audit

FINDINGS_SHOWN = 100


@click.command(epilog=example("fairlead check --repair --store embedded:./data"))
@click.option("--repair", is_flag=True, help="Mend what can be mended without losing an item.")
@target_options
@json_option
@click.pass_context
def check(ctx: click.Context, target: Target, repair: bool) -> None:
    """Walk whole stores and verify every invariant; exits with 1 if one is broken and stays so.

    Runs beside producers and consumers. What a newer version wrote is left alone.
    """
    app = target.app()
    reports = {}
    for name, shard in app.shards.items():
        with progress(f"checking {name}") as advance:
            reports[name] = audit(shard, repair=repair, progress=lambda keys: advance(keys, None))
    healthy = all(report.healthy for report in reports.values())
    answer = {"healthy": healthy, "shards": [_answer(name, report) for name, report in reports.items()]}
    show(answer, lambda: _lines(reports, healthy, repair))
    if not healthy:
        ctx.exit(FOUND_FAULTS)


def _answer(name: str, report: Report) -> dict[str, Any]:
    return {
        "shard": name,
        "healthy": report.healthy,
        "zones": report.zones,
        "items": report.items,
        "buried": report.buried,
        "pointers": report.pointers,
        "newer": report.newer,
        "unknown": report.unknown,
        "foreign": report.foreign,
        "unverified": report.unverified,
        "findings": [_finding_answer(finding) for finding in report.findings],
        "more_findings": report.more_findings,
    }


def _finding_answer(finding: Finding) -> dict[str, Any]:
    return {
        "what": finding.what,
        "app": finding.tenant and finding.tenant.app,
        "user": finding.tenant and finding.tenant.user,
        "zone": finding.zone,
        "item": finding.item_id and finding.item_id.hex(),
        "key": finding.key.hex(),
        "repairable": finding.repairable,
        "repaired": finding.repaired,
    }


def _lines(reports: Mapping[str, Report], healthy: bool, repair: bool) -> Iterator[str | Table]:
    columns = ("shard", "#zones", "#items", "#buried", "#pointers", "#findings", "#repaired", "left alone")
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
    elif not repair and any(finding.repairable for _, finding in findings):
        yield "fairlead check --repair mends what says so"


def _row(name: str, report: Report) -> tuple[object, ...]:
    alone = {"newer": report.newer, "unknown": report.unknown, "moved": report.foreign, "unverified": report.unverified}
    left = ", ".join(f"{count:,} {word}" for word, count in alone.items() if count)
    repaired = sum(finding.repaired for finding in report.findings)
    count = len(report.findings) + report.more_findings
    return name, report.zones, report.items, report.buried, report.pointers, count, repaired, left


def _finding_row(name: str, finding: Finding) -> tuple[object, ...]:
    tenant = "" if finding.tenant is None else "/".join(filter(None, finding.tenant))
    state = "repaired" if finding.repaired else "--repair mends it" if finding.repairable else "needs a person"
    item = "" if finding.item_id is None else finding.item_id.hex()
    return name, finding.what, tenant, finding.zone or "", item, state
