"""Checking a shard: every invariant of what is stored, and how to repair violations.

Read in this order:
    findings      what an integrity check reports
    walk          reading a whole key space in bounded transactions, and running checks on the rows
    parsed_keys   keys parsed: which check looks at which key
    records       single records and keys: readable, or of a newer version
    items         records, index entries, payloads
    dead_letters  dead letters, retained ids, results
    claims        worker sessions and their claims
    pointers      pointers and their queue; whether a zone's pointer vests in time
    counts        counts and depths, which may be too large for one transaction
    runs          workflows: heads, entries, participants, fences, tombstones
    locks         locks of workflows
    indexed       the shard's index, and what it finds
    snapshots     copies for tenants' snapshots, and when housekeeping looks at them
    moves         records of moves, and the items that carry them out
    zone_rows     rows grouped by zone, each with its checks
    checker       all checks of a shard in order
    homes         over several shards: each run of which a participant keeps something has a home

A check reads all that it compares in one transaction. So it sees one version of the store, and a store in use gives no
false alarms. When a check finds a violation, it runs once more, with read conflicts, in a transaction of its own. That
transaction's result is reported, and it repairs. Records of a newer version are never changed.
"""

from fairlead.zones.maintenance.integrity.checker import check_integrity
from fairlead.zones.maintenance.integrity.findings import Finding, Report
from fairlead.zones.maintenance.integrity.homes import check_homes

__all__ = ["check_homes", "check_integrity", "Finding", "Report"]
