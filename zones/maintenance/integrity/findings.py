"""What an integrity check reports: findings with a constant text each, and how much was checked."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fairlead.zones.engines import Transaction
from fairlead.zones.layout import Tenant, ZoneLocation

FINDINGS_MAX = 10_000  # Further findings are only counted.

Mend = Callable[[Transaction], None]
Range = tuple[bytes, bytes]


class Problem(NamedTuple):
    """What a check found in one transaction.

    `mend` repairs it in the same transaction. `aside`: ranges to set aside, because they cannot be read and cannot be
    derived. With neither, only a person can help: `remedy` says what to do. `run`: of a workflow.
    """

    what: str
    key: bytes
    location: ZoneLocation | None = None
    item_id: bytes | None = None
    mend: Mend | None = None
    aside: Sequence[Range] = ()
    run: bytes | None = None
    remedy: str = ""


class KeptRun(NamedTuple):
    """A run, and a tenant that is a participant of it, or was one."""

    tenant: Tenant
    run: bytes


def pair(key: bytes) -> Range:
    """Return the range that holds one key."""
    return key, key + b"\x00"


@dataclass(frozen=True, slots=True)
class Finding:
    """An invariant that does not hold. `what` is constant text, the other fields give the place.

    `damaged`: what lies there cannot be read; `set_aside`: it was moved to the quarantine. `run`: of which workflow.
    `remedy`: what to do, if neither a repair nor the quarantine is all of it.
    """

    what: str
    key: bytes
    tenant: Tenant | None
    zone: str | None
    item_id: bytes | None
    repairable: bool
    repaired: bool
    damaged: bool = False
    set_aside: bool = False
    run: bytes | None = None
    remedy: str = ""

    @property
    def resolved(self) -> bool:
        """Whether the invariant holds again."""
        return self.repaired or self.set_aside


@dataclass(slots=True)
class Report:
    """What an integrity check saw.

    `newer`: records that a newer version wrote; not changed. `unknown`: keys of subspaces that this version does not
    know; not changed. `foreign`: tenants that another shard owns. `unverified`: counts that kept changing while they
    were added up: no error is known, check again when the store is quiet; repairs of tenants that stayed locked; runs
    at participants beyond the first 100,000. `kept`: runs of which a tenant keeps steps or a fence, without being
    their home; see `homes`. `without_home`: those whose home is on no shard that was checked, though there may be
    other shards.
    """

    findings: list[Finding] = field(default_factory=list)
    more_findings: int = 0
    zones: int = 0
    items: int = 0
    dead_letters: int = 0
    pointers: int = 0
    newer: int = 0
    unknown: int = 0
    foreign: int = 0
    unverified: int = 0
    kept: set[KeptRun] = field(default_factory=set)
    without_home: list[KeptRun] = field(default_factory=list)

    @property
    def healthy(self) -> bool:
        """Whether every invariant holds now: there were no findings, or all were repaired or set aside."""
        return not self.more_findings and all(finding.resolved for finding in self.findings)

    def add(self, problem: Problem, *, repaired: bool, set_aside: bool = False) -> None:
        """Add a confirmed problem as a finding."""
        location = problem.location
        finding = Finding(
            what=problem.what,
            key=problem.key,
            tenant=None if location is None else location.tenant,
            zone=None if location is None else location.name,
            item_id=problem.item_id,
            repairable=problem.mend is not None,
            repaired=repaired,
            damaged=bool(problem.aside),
            set_aside=set_aside,
            run=problem.run,
            remedy=problem.remedy,
        )
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(finding)
        else:
            self.more_findings += 1
