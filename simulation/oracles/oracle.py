"""The base of all oracles. They observe commits in the queue's terms, calls, replies, handlers, and the end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from fairlead.actors.execution.job import Job
from fairlead.simulation.network import Network, Reply
from fairlead.simulation.replica import ItemName, ParsedCommit, ShardReplica
from fairlead.simulation.store import Commit, SimulatedStore
from fairlead.simulation.world import World
from fairlead.zones.layout import Tenant


@dataclass(slots=True, eq=False)
class HandlerRun:
    """One run of a handler: its item, its host, and whether it returned."""

    item: ItemName
    job: Job
    host: str
    clock_us: int  # the node's clock at its start
    may_drop: bool  # whether an item of this kind that failed for good is deleted
    commits_ends: bool = False  # whether it is an attempt of a workflow, which commits what becomes of its item
    connection: Any = None  # with the transaction of an external store in which it runs, if it does
    returned: bool = False
    error: str | None = None  # the class of its error, unless its host was killed
    over: bool = False

    @property
    def lease_id(self) -> bytes:
        """The lease of this run."""
        return self.job.lease_id

    @property
    def actor(self) -> str:
        """The worker of this run, without the number of the incarnation."""
        return self.host.partition("#")[0]


class Oracle:
    """A promise. A subclass overrides the events that it needs."""

    promise = ""

    def __init__(self, world: World) -> None:
        self.world = world

    def on_commit(self, parsed: ParsedCommit) -> None:
        """A commit was applied."""

    def on_call(self, caller: str, target: str, method: str, args: Sequence[Any]) -> None:
        """An actor was called."""

    def on_reply(self, reply: Reply) -> None:
        """An actor has answered a call."""

    def on_start(self, run: HandlerRun) -> None:
        """A handler starts."""

    def on_end(self, run: HandlerRun) -> None:
        """A handler has ended."""

    def at_end(self, shards: Sequence[ShardReplica]) -> None:
        """The run has ended: faults have stopped, and all work should be done."""

    def report_violation(self, what: str) -> None:
        """Report a violation of the promise."""
        self.world.fail(self.promise, what)


class OracleSuite:
    """All oracles of a run, and the replicas of the shards."""

    def __init__(self, world: World, shard_names: Sequence[str]) -> None:
        self.shards = {name: ShardReplica(name) for name in shard_names}
        for replica in self.shards.values():
            replica.share_strays(next(iter(self.shards.values())))
        self.oracles: list[Oracle] = []
        self._world = world

    def attach(self, stores: Iterable[SimulatedStore], network: Network) -> None:
        """Observe the commits of stores, and the calls of a network."""
        for store in stores:
            store.on_commit.append(self.on_commit)
        network.on_call.append(self.on_call)
        network.on_reply.append(self.on_reply)

    def on_commit(self, commit: Commit) -> None:
        """Show a commit to all."""
        parsed = self.shards[commit.shard].read(commit, self._world.now_us())
        for tenant in parsed.arrived:
            self._let_leave(tenant, parsed.shard)
        for change in parsed.items:
            if change.dead_lettered is not None:
                self._world.note(f"makes {change.item} a dead letter: {change.dead_lettered.reason}")
        for oracle in self.oracles:
            oracle.on_commit(parsed)

    def _let_leave(self, tenant: Tenant, to: ShardReplica) -> None:
        """Let a tenant leave the shard that still says that it owns the tenant, whom another shard owns now."""
        self._world.note(f"{to.name} owns {tenant.app}/{tenant.user}")
        for shard in self.shards.values():
            if shard is not to and shard.lives_here(tenant):
                shard.leave(tenant)

    def on_call(self, caller: str, target: str, method: str, args: Sequence[Any]) -> None:
        """Show a call to all."""
        for oracle in self.oracles:
            oracle.on_call(caller, target, method, args)

    def on_reply(self, reply: Reply) -> None:
        """Show a reply to all."""
        for oracle in self.oracles:
            oracle.on_reply(reply)

    def on_start(self, run: HandlerRun) -> None:
        """Show the start of a handler to all."""
        self._world.note(f"runs {run.job.kind} {run.item} under {run.lease_id.hex()[:8]}")
        for oracle in self.oracles:
            oracle.on_start(run)

    def on_end(self, run: HandlerRun) -> None:
        """Show the end of a handler to all."""
        raised = f"raised {run.error}" if run.error else "returned too late, or no result"
        self._world.note(f"ends {run.job.kind} {run.item}: {'returned' if run.returned else raised}")
        run.over = True
        for oracle in self.oracles:
            oracle.on_end(run)

    def at_end(self) -> None:
        """Show the end to all."""
        for oracle in self.oracles:
            oracle.at_end(list(self.shards.values()))
