"""Pauses: no transaction that could have read a pause leases a paused item."""

from fairlead.simulation.oracles.oracle import Oracle
from fairlead.simulation.replica import ParsedCommit


class WhatIsPausedStays(Oracle):
    """No commit leases an item whose tenant, kind or shard was paused in the version that it read.

    A pause of a tenant conflicts with every dequeue, so it also holds for dequeues that read before the pause.
    """

    promise = "what is paused is not leased"

    def on_commit(self, parsed: ParsedCommit) -> None:
        """See `Oracle`."""
        paused_since = parsed.shard.paused_since
        if not paused_since:
            return
        read_version = parsed.commit.read_version
        for item, before, after, *_ in parsed.items:
            if before is None or after is None or after.lease_id in (b"", before.lease_id):
                continue
            if item.tenant in paused_since:
                self.report_violation(f"{parsed.by} leases {item}, whose tenant is paused")
            for what in (None, after.kind):
                since = paused_since.get(what)
                if since is not None and read_version is not None and since <= read_version:
                    self.report_violation(f"{parsed.by} leases {item}, and {what or 'its shard'} is paused")
