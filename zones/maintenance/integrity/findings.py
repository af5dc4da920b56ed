"""What an audit reports: findings with a constant text each, and how much was looked at."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fairlead.zones.engines import Transaction
from fairlead.zones.layout import Tenant, ZoneLocation

FINDINGS_MAX = 10_000  # Beyond it they are only counted: a list that nobody can read helps nobody.

Mend = Callable[[Transaction], None]
Range = tuple[bytes, bytes]


class Problem(NamedTuple):
    """What a check found in one transaction.

    `mend` repairs it in the same one. `aside`: what must be set aside for it, because nobody can read it, and nothing
    says what it was. With neither only a person can help.
    """

    what: str
    key: bytes
    location: ZoneLocation | None = None
    item_id: bytes | None = None
    mend: Mend | None = None
    aside: Sequence[Range] = ()


def pair(key: bytes) -> Range:
    """Return the range that holds one key."""
    return key, key + b"\x00"


@dataclass(frozen=True, slots=True)
class Finding:
    """An invariant that does not hold. `what` is constant text, the rest says where.

    `damaged`: nobody can read what is there; `set_aside`: it was, into the quarantine.
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

    @property
    def resolved(self) -> bool:
        """Whether it is not broken any more."""
        return self.repaired or self.set_aside


@dataclass(slots=True)
class Report:
    """What an audit saw.

    `newer`: records that a newer version wrote; left alone. `unknown`: keys of subspaces that this version does not
    know; left alone. `foreign`: tenants that another shard owns. `unverified`: counts that changed all the time while
    they were added up; not wrong as far as can be told, look again when the store is quiet.
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

    @property
    def healthy(self) -> bool:
        """Whether nothing is broken any more: there were no findings, or all were repaired or set aside."""
        return not self.more_findings and all(finding.resolved for finding in self.findings)

    def add(self, problem: Problem, *, repaired: bool, set_aside: bool = False) -> None:
        """Add a confirmed problem; the same one twice is one finding."""
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
        )
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(finding)
        else:
            self.more_findings += 1
