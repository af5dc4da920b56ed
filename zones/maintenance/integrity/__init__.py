"""Checking a shard: every invariant of what is stored, one small piece each, and how to mend what is broken.

Read in this order:
    findings   what an audit reports
    walk       reading a whole key space in bounded transactions, and running checks on what is there
    places     keys taken apart: which check looks at which key
    items      records, index entries, payloads
    graves     buried items, and ids that stay taken
    tops       pointers and their queue; whether a zone's pointer vests in time
    tallies    counts and depths, which no single transaction may be able to add up
    auditor    all of it in order

A check reads all it compares in one transaction, so it sees one version of the store, and a live store gives no false
alarms. What a check finds is looked at once more, with read conflicts, in a transaction of its own: that is the one
that is reported, and that mends. Nothing that a newer version wrote is touched.
"""

from fairlead.zones.maintenance.integrity.checker import check_integrity
from fairlead.zones.maintenance.integrity.findings import Finding, Report

__all__ = ["check_integrity", "Finding", "Report"]
