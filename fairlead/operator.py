"""The operator: the person whose actions the audit log records, and the program that person uses."""

import os
import pwd
import socket
from collections.abc import Mapping
from typing import Any, NamedTuple

from fairlead.zones.records import AuditEntry

BY_CHARACTERS_MAX = 200


class Operator(NamedTuple):
    """A person who controls the fleet. `name`: as far as it is known; `through`: the program, such as "dashboard"."""

    name: str
    through: str

    def audit_entry(
        self,
        audit_entry_id: bytes,
        what: str,
        to: Mapping[str, Any],
        *,
        done_us: int,
        count: int = 1,
        ended: bool = True,
    ) -> AuditEntry:
        """Return an audit entry of this operator; see `AuditEntry`."""
        by = self.name[:BY_CHARACTERS_MAX].encode(errors="backslashreplace").decode()
        return AuditEntry(audit_entry_id, by, self.through, what, dict(to), done_us, count, ended)


def operator_here(through: str) -> Operator:
    """Return the user of this process: the user's name and the machine's."""
    user = os.geteuid()
    try:
        name = pwd.getpwuid(user).pw_name
    except KeyError:  # A container's user need not have a name.
        name = str(user)
    return Operator(f"{name}@{socket.gethostname()}", through)
