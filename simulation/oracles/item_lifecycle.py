"""The lifecycle of items: each is enqueued once, runs at least once or is cancelled, and ends as allowed."""

from collections.abc import Callable, Sequence
from typing import Any

from fairlead.simulation.network import Reply
from fairlead.simulation.oracles.leases import is_cancelled_child, is_hold
from fairlead.simulation.oracles.oracle import HandlerRun, Oracle
from fairlead.simulation.oracles.zone_operations import EXPIRED
from fairlead.simulation.replica import ItemChange, ItemName, ParsedCommit, ShardReplica, item_of
from fairlead.simulation.world import World
from fairlead.zones.records import ItemRecord
from fairlead.zones.workflow.children import DELIVERY_KIND
from fairlead.zones.workflow.locks import HOLD_KIND


class ItemsRunBeforeTheyGo(Oracle):
    """An item leaves its queue because its handler ran, or it was cancelled; at the end all queues are empty.

    The hold of a process that is dead may be ended without a run; `LeasesAreRespected` says when.
    """

    promise = "every enqueued item runs or is cancelled"

    def __init__(self, world: World, is_consumer: Callable[[str], bool]) -> None:
        super().__init__(world)
        self._is_consumer = is_consumer
        self._runs: dict[ItemName, list[HandlerRun]] = {}

    def on_start(self, run: HandlerRun) -> None:
        """See `Oracle`."""
        self._runs.setdefault(run.item, []).append(run)

    def on_commit(self, parsed: ParsedCommit) -> None:
        """See `Oracle`."""
        for change in parsed.items:
            if change.after is None and self._is_consumer(parsed.commit.by) and change.dead_lettered is None:
                self._check_removal(change, parsed)

    def at_end(self, shards: Sequence[ShardReplica]) -> None:
        """See `Oracle`."""
        for shard in shards:
            for item, record in shard.items():
                self.report_violation(f"{item} is still in its queue: {record}")

    def _check_removal(self, change: ItemChange, parsed: ParsedCommit) -> None:
        """An item may be removed by the worker that ran it: after the handler returned, or in its transaction."""
        runs = self._runs.pop(change.item, [])
        if is_cancelled_child(change) or is_hold(change):
            return
        if not any(run.actor == parsed.by and self._may_have_removed(run) for run in runs):
            self.report_violation(f"{parsed.by} removes {change.item} without having run it")

    def _may_have_removed(self, run: HandlerRun) -> bool:
        return run.returned or run.may_drop or not run.over or run.job.may_be_completed or run.commits_ends


class OnlyTheTriedAreDeadLettered(Oracle):
    """An item becomes a dead letter after its handler raised, or after its lease expired in an isolated run.

    A poisonous item must not make dead letters of the items that shared its worker. Isolated runs are on isolated
    workers, one at a time, and nothing else runs there.

    Args:
      is_isolated: returns whether a host is an isolated worker's.
    """

    promise = "an item becomes a dead letter only if it failed, or expired in an isolated run"

    def __init__(self, world: World, is_isolated: Callable[[str], bool]) -> None:
        super().__init__(world)
        self._is_isolated = is_isolated
        self._isolated: set[tuple[ItemName, bytes]] = set()  # leases under which an item must run isolated
        self._marked: set[tuple[ItemName, bytes]] = set()  # leases under which it was about to
        self._runs: dict[ItemName, list[HandlerRun]] = {}
        self._running: dict[str, list[HandlerRun]] = {}  # by host

    def on_call(self, caller: str, target: str, method: str, args: Sequence[Any]) -> None:
        """See `Oracle`."""
        if method == "place":
            self._isolated.update((item_of(ref), ref.lease_id) for ref in args[0] if ref.isolated)

    def on_start(self, run: HandlerRun) -> None:
        """See `Oracle`."""
        beside = [other for other in self._running.get(run.host, ()) if not other.job.cancelled]
        if any(self._must_be_isolated(each) for each in [run, *beside]) and beside:
            self.report_violation(
                f"{run.host} runs {run.item} beside {beside[0].item}, and one of them had to be isolated"
            )
        if self._must_be_isolated(run) != self._is_isolated(run.host):
            had_to = "isolated" if self._must_be_isolated(run) else "beside others"
            self.report_violation(f"{run.host} runs {run.item}, which had to run {had_to}")
        self._running.setdefault(run.host, []).append(run)
        self._runs.setdefault(run.item, []).append(run)

    def on_end(self, run: HandlerRun) -> None:
        """See `Oracle`."""
        self._running[run.host].remove(run)

    def on_commit(self, parsed: ParsedCommit) -> None:
        """See `Oracle`."""
        for change in parsed.items:
            after = change.after
            if after is not None and after.ran_isolated and (change.item, after.lease_id) in self._isolated:
                # The mark is set when the handler is about to start. If the worker dies just then, this looks as if the
                # handler had killed the worker.
                self._marked.add((change.item, after.lease_id))
            elif change.dead_lettered is not None:
                runs = self._runs.pop(change.item, [])
                expired = change.dead_lettered.reason == EXPIRED
                marked = change.before is not None and (change.item, change.before.lease_id) in self._marked
                if not (marked if expired else any(self._failed(run) for run in runs)):
                    self.report_violation(
                        f"{parsed.by} makes {change.item} a dead letter: {change.dead_lettered.reason}, "
                        f"{change.dead_lettered.error}"
                    )

    def _must_be_isolated(self, run: HandlerRun) -> bool:
        return (run.item, run.lease_id) in self._isolated

    def _failed(self, run: HandlerRun) -> bool:
        return run.job.cancelled or (run.over and not run.returned) or run.commits_ends


class NoLeaseExpiresWithoutCause(Oracle):
    """While nothing stalls or is unreachable, every item is extended, completed or returned in time.

    The end of a worker incarnation before it accepted an item explains that expiry. An incarnation that has accepted an
    item completes or returns it, because in the checked runs workers end in good order. Holds are not checked, because
    processes that hold locks die in these runs, too.

    Args:
      incarnation_of: returns the name of an actor's present host; None while it is dead.
    """

    promise = "without a fault that explains it, no lease expires"

    def __init__(self, world: World, incarnation_of: Callable[[str], str | None]) -> None:
        super().__init__(world)
        self._incarnation_of = incarnation_of
        self._sent: dict[tuple[ItemName, bytes], tuple[str, str]] = {}  # the worker, and its incarnation
        self._accepted: set[tuple[ItemName, bytes]] = set()

    def on_call(self, caller: str, target: str, method: str, args: Sequence[Any]) -> None:
        """See `Oracle`."""
        if method == "place":
            refs, incarnation = args
            for ref in refs:
                self._sent[item_of(ref), ref.lease_id] = (target, incarnation.decode())

    def on_reply(self, reply: Reply) -> None:
        """See `Oracle`."""
        if reply.method == "place" and reply.error is None:
            refs, incarnation = reply.args
            if incarnation == reply.result.incarnation:  # Another incarnation accepts none of them.
                self._accepted.update((item_of(ref), ref.lease_id) for ref in refs)

    def on_commit(self, parsed: ParsedCommit) -> None:
        """See `Oracle`."""
        for change in parsed.items:
            before, after = change.before, change.after
            if is_hold(change) or before is None or after is None:
                continue
            if after.expired_count > before.expired_count:
                lease = (change.item, before.lease_id)
                if lease in self._accepted or not self._ended_since(self._sent.get(lease)):
                    sent = self._sent.get(lease)
                    self.report_violation(f"{parsed.by} takes over {change.item}, whose lease expired; sent to {sent}")

    def _ended_since(self, sent: tuple[str, str] | None) -> bool:
        """Whether a lease was sent to a worker incarnation that has ended."""
        return sent is not None and self._incarnation_of(sent[0]) != sent[1]


class ItemsAreEnqueuedOnce(Oracle):
    """An item with a random id is enqueued once: a repeated transaction does not enqueue it again.

    An item with a given id may be enqueued again after its end. So may the delivery of a child's end: a child that was
    retried as a dead letter ends again. So may a hold that was cancelled before its process learned that it began: the
    process has done nothing under it.
    """

    promise = "an item that was enqueued once is not enqueued again"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._seen: set[ItemName] = set()

    def on_commit(self, parsed: ParsedCommit) -> None:
        """See `Oracle`."""
        for change in parsed.items:
            after = change.after
            if change.before is None and after is not None and not change.retried and not _may_come_again(after):
                if change.item in self._seen:
                    self.report_violation(f"{parsed.by} enqueues {change.item}, which was there before")
                self._seen.add(change.item)


def _may_come_again(record: ItemRecord) -> bool:
    return record.given_id is not None or record.kind in (DELIVERY_KIND, HOLD_KIND)
