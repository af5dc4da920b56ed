"""External stores as `status` and `check` show them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.table import Table

from fairlead.cli.output import table
from fairlead.error_text import fields_of, message_of
from fairlead.external_checks import ExternalFinding, ExternalReport
from fairlead.formatting import iso_time, span
from fairlead.queries.external_stores import ExternalStatus, ReaderState
from fairlead.zones.external.inspection import COUNTED_MAX

FINDINGS_SHOWN = 100


def external_answer(each: ExternalStatus) -> dict[str, Any]:
    """Return the status of a store as JSON."""
    reader = {
        "live": each.reader.is_live,
        "lease_until": None if each.reader.until_us is None else iso_time(each.reader.until_us),
        "error": each.reader.error or None,
    }
    if each.error is not None:
        described = {"error": message_of(each.error), "fields": fields_of(each.error), "do": each.remedy}
        return {"store": each.name, "reader": reader, **described}
    totals = each.totals
    assert totals is not None, "a store that can be read has totals"
    return {
        "store": each.name,
        "items": totals.items,
        "items_exact": totals.is_exact,
        "depth": totals.kinds,
        "oldest_waits_s": None if totals.waits_us is None else totals.waits_us / 1e6,
        "oldest_at_least": not totals.waits_whole,
        "dead_letters": totals.dead_letters,
        "kept": totals.kept,
        "counted_max": COUNTED_MAX,
        "dead_rows": totals.dead_rows,
        "doorbell": totals.rings,
        "reader": {
            **reader,
            "unseen_items": totals.unseen_items,
            "unseen_queues": totals.unseen_queues,
            "behind_s": None if totals.unseen_us is None else totals.unseen_us / 1e6,
        },
    }


def external_lines(found: Sequence[ExternalStatus]) -> Iterator[str | Table]:
    """Yield the status of stores as tables; nothing without stores."""
    if not found:
        return
    columns = ("external store", "#items", "oldest waits", "#dead letters", "#kept", "#dead rows", "doorbell", "reader")
    yield table(columns, (_row(each) for each in found))
    for each in found:
        if each.error is not None:
            yield f"{each.name}: {each.sentence}"
            if each.remedy:
                yield f"  Do: {each.remedy}"
    depths = [(each.name, *depth) for each in found if each.totals is not None for depth in each.totals.kinds.items()]
    if depths:
        yield table(("external store", "kind", "#items"), depths)
    for each in found:
        if each.totals is not None and not each.totals.is_exact:
            yield f"{each.name}: its items are estimated; those by kind are the first {COUNTED_MAX:,}"


def report_answer(name: str, report: ExternalReport) -> dict[str, Any]:
    """Return what a check found as JSON."""
    return {
        "store": name,
        "healthy": report.healthy,
        "queues": report.queues,
        "whole": report.whole,
        "findings": [
            {
                "what": each.what,
                "fault": each.is_fault,
                "do": each.do,
                "tenant": each.queue and each.queue.tenant,
                "zone": each.queue and each.queue.zone,
                "repaired": each.repaired,
            }
            for each in report.findings
        ],
    }


def report_lines(reports: Mapping[str, ExternalReport]) -> Iterator[str | Table]:
    """Yield what checks found; nothing without stores."""
    if not reports:
        return
    columns = ("external store", "#queues", "#findings", "state")
    yield table(columns, ((name, each.queues, len(each.findings), _state(each)) for name, each in reports.items()))
    for name, report in reports.items():
        for finding in report.findings[:FINDINGS_SHOWN]:
            yield from _finding_lines(name, finding)
        if len(report.findings) > FINDINGS_SHOWN:
            yield f"{name}: and {len(report.findings) - FINDINGS_SHOWN:,} more; --json shows them"
        if not report.whole:
            yield f"{name}: the check ended after so many; run it again once they are repaired"


def _state(report: ExternalReport) -> str:
    return "a fault" if not report.healthy else "care" if report.findings else "well"


def _finding_lines(name: str, finding: ExternalFinding) -> Iterator[str]:
    where = "" if finding.queue is None else f", {finding.queue.tenant}, zone {finding.queue.zone}"
    yield f"{name}: {finding.what}{where}{': repaired' if finding.repaired else ''}"
    if not finding.repaired and finding.do:
        yield f"  Do: {finding.do}"


def reader_in_words(each: ExternalStatus) -> str:
    """Return how far the reader of a store is."""
    reader: ReaderState = each.reader
    if reader.error:
        return f"unknown: {reader.error}"
    state = "reads" if reader.is_live else "no consumer reads it"
    if each.totals is None or not each.totals.unseen_items:
        return state
    behind = "" if each.totals.unseen_us is None else f", {span(each.totals.unseen_us)} behind"
    return f"{state}, {_counted(each.totals.unseen_items)} items unseen{behind}"


def _row(each: ExternalStatus) -> tuple[object, ...]:
    totals = each.totals
    if totals is None:
        return each.name, "?", "?", "?", "?", "?", "?", reader_in_words(each)
    more = "" if totals.waits_whole else "at least "
    return (
        each.name,
        totals.items if totals.is_exact else f"about {totals.items:,}",
        "" if totals.waits_us is None else more + span(totals.waits_us),
        _counted(totals.dead_letters),
        _counted(totals.kept),
        totals.dead_rows,
        "on" if totals.rings else "off",
        reader_in_words(each),
    )


def _counted(count: int) -> str:
    return f"{count:,}" if count < COUNTED_MAX else f"{count:,} or more"
