"""An application: its handlers, its shards and its tenants."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from random import Random, SystemRandom
from typing import Any, ParamSpec, TypeVar, Unpack, overload

from fairlead import bulk_enqueue
from fairlead.actors.execution import submitted_handlers
from fairlead.actors.handlers import Form, HandlerOptions, Registry, WorkflowOptions, handler_of
from fairlead.actors.telemetry.enqueueing import Enqueueing
from fairlead.app_simulation.scenario import Scenario
from fairlead.argument_checks import check_known, check_runs_in, checked_pair, refuse_missing_parentheses
from fairlead.bulk_result import BulkResult
from fairlead.clock import SystemClock
from fairlead.config import Config, arguments_of, load, named_shards
from fairlead.control import Control
from fairlead.dead_letters import discard_all, retry_all
from fairlead.explanation import Explanation, explain
from fairlead.external_explanation import explain_in_stores
from fairlead.external_stores import ExternalAccess, OfTenant, open_stores
from fairlead.found_items import FoundItem, find_items
from fairlead.handle import EnqueuedHandle
from fairlead.handler_types import HandlerDecorator, HandlerFunction, Hook
from fairlead.move_views import MoveView
from fairlead.moves import (
    MB_PER_S,
    TENANTS_MAX,
    MovePlan,
    Rebalance,
    TenantMove,
    begin_move,
    cancel_move,
    list_moves,
    plan_move,
    plan_rebalance,
)
from fairlead.operator import Operator, operator_here
from fairlead.record_type import Records
from fairlead.records.alternate_keys import check_type_name, declared_fields
from fairlead.records.on_shards.slots import Locations
from fairlead.records.values import Values
from fairlead.registered_handler import RegisteredHandler, function_of
from fairlead.shards import NoShards, Shards
from fairlead.snapshots import Snapshot
from fairlead.tenant_database import TenantDatabase, checked_id, tenant_of
from fairlead.unique_items import Reservation
from fairlead.workflows.index_build import change_handler
from fairlead.workflows.moves import move_handler
from fairlead.workflows.record_cleanup import cleanup_handlers
from fairlead.workflows.record_repair import repair_handlers
from fairlead.workflows.system_kinds import system_handlers
from fairlead.workflows.workflow_kind import WorkflowKind, workflow_handler
from fairlead.zones.durations import DAY_S, Duration, duration_us
from fairlead.zones.engines import Clock
from fairlead.zones.errors import BadArgument, QueueError, TenantMoved
from fairlead.zones.external.inspection import InspectedStore
from fairlead.zones.index_values import IndexValue
from fairlead.zones.layout import DEFAULT_ZONE, Tenant, check_zone, local_tenant, named_tenant
from fairlead.zones.moving.errors import MoveRefused, MoveUnderWay
from fairlead.zones.moving.move_record import MOVE_KIND
from fairlead.zones.process_lock import ProcessLock
from fairlead.zones.queue.dead_letter_search import DeadLetterFilter
from fairlead.zones.queue.item_keys import check_mapping
from fairlead.zones.queue.items import Enqueued, HasKind, ItemOptions, NewItem, kind_of, new_item
from fairlead.zones.queue.periodic import Period, checked_interval
from fairlead.zones.shard import Shard
from fairlead.zones.spanning.coordinator import SpanningTransaction, run_across_shards
from fairlead.zones.tenant_transaction import check_plain

P = ParamSpec("P")
R = TypeVar("R")
V = TypeVar("V")

TenantOfKey = Callable[[str], Tenant | str]


class App:
    """An application of the queue.

    The application reads its configuration, and opens a store, at the first call that needs it.

    Args:
      shards: the store's url (`embedded:./data`, `fdb:`, `fdb:CLUSTER_FILE`, `memory:`), or several by name; None:
        the shards of the configuration. A relative path begins in the directory of the configuration file if there is
        one, else in the current directory.
      config: a whole configuration; then neither the environment nor `fairlead.toml` is read.
      external: databases by name whose queues lie beside a user's data, `{"pg": "postgresql://localhost/shop"}`; None:
        those of the configuration. `{"pg": {"dsn": "postgresql://localhost/shop", "notify": False}}` has an option, see
        `Config.external_notify`. `fairlead postgres init` prepares one.
      known_kinds_only: refuse to enqueue a kind without a handler here. For programs that import all handlers; a web
        server that imports none of the fleet's handlers leaves it False.
      clock, random: the sources of time and randomness; default: the machine's.

    Attributes:
      simulation: the requests and checks of `fairlead simulate`; see `Scenario`.
      record_types: the types of records that the program has declared, by name; the last declaration of each.
      operator: the operator of `control` and of bulk changes to dead letters, for the audit log.
    """

    def __init__(
        self,
        shards: str | Mapping[str, str] | None = None,
        *,
        config: Config | None = None,
        external: Mapping[str, str | Mapping[str, Any]] | None = None,
        known_kinds_only: bool = False,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        self.registry = Registry()
        self.periods: list[Period] = []
        self.simulation = Scenario()
        self.record_types: dict[str, Records[Any]] = {}
        self.operator: Operator = operator_here("program")
        self.clock: Clock = clock or SystemClock()
        self.random = random or SystemRandom()  # The machine's entropy: forked processes share no state.
        chosen = {"shards": named_shards(shards), "external": None if external is None else dict(external)}
        self.arguments = chosen if config is None else arguments_of(config)
        self._directory = None if shards is None else Path.cwd()  # The program may change it before the first use.
        self._known_kinds_only = known_kinds_only
        self._config = config
        self._shards: Shards | None = None
        self._externals: dict[str, InspectedStore] | None = None
        self._lock = ProcessLock()

    @property
    def config(self) -> Config:
        """The configuration in force.

        Raises:
          BadConfig: see `fairlead.config.load`.
        """
        if self._config is None:
            self._config = self.load_config()
        return self._config

    def load_config(self, arguments: Mapping[str, Any] | None = None, *, path: Path | None = None) -> Config:
        """Return the configuration that the application would have with further `arguments`; see `config.load`.

        Raises:
          BadConfig: see `fairlead.config.load`.
        """
        return load({**self.arguments, **(arguments or {})}, path=path, directory=self._directory)

    @property
    def shards(self) -> Shards:
        """The shards by name, each opened when it is first used.

        Raises:
          NoShards: neither the application nor the configuration names one.
        """
        return self._shards_now()

    @property
    def externals(self) -> Mapping[str, InspectedStore]:
        """The external stores by name, each of which connects when it is first used.

        Raises:
          PsycopgMissing: see there.
        """
        with self._lock:
            if self._externals is None:
                self._externals = open_stores(self.config, self.clock)
            return self._externals

    def configure(self, config: Config) -> None:
        """Use `config` from now on, as a worker does with the configuration of its fleet. Closes open stores."""
        self.close()
        self._config = config

    def close(self) -> None:
        """Close all stores. The next call that needs a store opens it again."""
        with self._lock:
            if self._shards is not None:
                self._shards.close()
            for store in (self._externals or {}).values():
                store.close()
            self._shards = self._externals = None

    @contextmanager
    def using(self, shards: Shards, *, clock: Clock, random: Random) -> Iterator[None]:
        """Use other shards, another clock and another source of randomness meanwhile: those of a simulated world."""
        before = self._shards, self.clock, self.random
        self._shards, self.clock, self.random = shards, clock, random
        try:
            yield
        finally:
            self._shards, self.clock, self.random = before

    def store_errors(self) -> set[type[Exception]]:
        """Return the classes that the stores opened so far raise: `StoreError`, FoundationDB's own for a cluster."""
        return self._shards.errors() if self._shards is not None else set()

    # --- Handlers ---

    def workflow(
        self, kind: str, *, version: int = 1, **options: Unpack[WorkflowOptions]
    ) -> Callable[[Callable[P, R]], RegisteredHandler[P, R]]:
        """Make the decorated function the workflow of `kind`: each of its steps happens exactly once.

            @app.workflow("checkout", version=2, keep_result=86_400)
            def checkout(wf, order: int) -> str:
                price = wf.step(reserve, order, undo=release)
                charge = wf.effect(pay, price)
                return wf.finish(thank, order)

        An item of the kind is enqueued as any other one. The values of its payload, a dict, become keyword arguments.

        Args:
          kind: the kind of the items that it runs; text of 1 to 96 bytes.
          version: of the code, 1 or more. Raise it when you change the steps, and branch on `wf.version`.
          options: see `WorkflowOptions`.

        Raises:
          BadArgument: an argument is out of range.
          DuplicateHandler: the kind has a handler.
        """
        refuse_missing_parentheses("kind", kind, '@app.workflow("kind")')

        def register(function: Callable[P, R], /) -> RegisteredHandler[P, R]:
            if not any(handler.form is Form.WORKFLOW for handler in self.registry):
                for handler in system_handlers(self._home_of, self._on_moved):
                    self.registry.add(handler)
            runner = WorkflowKind(
                function,
                version=version,
                home_of=self._home_of,
                on_moved=self._on_moved,
                apply_later=self._apply_later,
            )
            self.registry.add(workflow_handler(kind, runner, **options))
            handler_options: HandlerOptions = {**options}  # type: ignore[typeddict-item]
            return RegisteredHandler(function, kind, handler_options, self.tenant)

        return register

    def _home_of(self, tenant: Tenant) -> Shard:
        return self.shards.home(tenant)

    def _on_moved(self, moved: TenantMoved) -> bool:
        return self.shards.note_moved(moved)

    def _apply_later(self, apply: Callable[[], None]) -> None:
        self.shards.calls.start(apply)

    def handler(self, kind: str, **options: Unpack[HandlerOptions]) -> HandlerDecorator:
        """Make the decorated function the handler of `kind`: a plain, async, or Ray remote function of a `Job`.

            @app.handler("invoice", timeout=30)
            def send_invoice(job):
                print(job.tenant, job.payload)
            send_invoice.enqueue("shop/alice", {"order": 7}, delay=60)

        The decorated function becomes a `RegisteredHandler`, which can still be called.

        Args:
          kind: the kind of the items that it handles; text of 1 to 96 bytes.
          options: see `HandlerOptions`.

        Raises:
          BadArgument: an argument is out of range.
          DuplicateHandler: the kind has a handler.
          NotTransactional: `transactional` with an async or a remote function.
        """
        refuse_missing_parentheses("kind", kind, '@app.handler("kind")')

        def register(function: Any, /) -> RegisteredHandler[..., Any]:
            plain = function_of(function)
            self.registry.add(handler_of(kind, plain, **options))
            return RegisteredHandler(plain, kind, options, self.tenant)

        return register

    def every(
        self, interval: Duration, *, kind: str | None = None, phase: Duration = 0, **options: Unpack[HandlerOptions]
    ) -> HandlerDecorator:
        """Run the decorated function every `interval`, at its multiples since the epoch plus `phase`, in UTC.

        Each tick enqueues one local item on one shard, whatever the number of consumers; there is no leader. The item
        runs like any other: it may be retried, and a slow item does not delay the next tick. Ticks that came while no
        consumer ran are collapsed into the last of them. `job.payload` is `{"tick_us": ..., "collapsed": ...}`.

        Args:
          interval: one second to a year, to the millisecond: seconds or a `timedelta`.
          kind: the kind of the items; default: the function's name.
          phase: 0 to below `interval`: 3600 with a phase of 300 is five minutes past every hour.
          options: see `HandlerOptions`.

        Raises:
          BadArgument, DuplicateHandler, NotTransactional: as for `handler`.
        """
        refuse_missing_parentheses("interval", interval, "@app.every(60)")
        every_us, phase_us = checked_interval(interval, phase)

        def register(function: Any, /) -> RegisteredHandler[..., Any]:
            named = kind or str(getattr(function, "__name__", ""))
            if options.get("store") is not None:
                raise BadArgument(argument="store", value=options["store"], allowed="None: a tick lies in a shard")
            registered = self.handler(named, **options)(function)
            self.periods.append(Period(named, every_us, phase_us))
            return registered

        return register

    def daily(self, at: str, *, kind: str | None = None, **options: Unpack[HandlerOptions]) -> HandlerDecorator:
        """Run the decorated function every day `at` a time such as "03:30", in UTC; see `every`."""
        refuse_missing_parentheses("at", at, '@app.daily("03:30")')
        hour, colon, minute = at.partition(":") if isinstance(at, str) else ("", "", "")
        if not (colon and hour.isdecimal() and minute.isdecimal() and int(hour) < 24 and int(minute) < 60):
            raise BadArgument(argument="at", value=at, allowed='"HH:MM", 00:00 to 23:59, in UTC')
        return self.every(DAY_S, kind=kind, phase=int(hour) * 3600 + int(minute) * 60, **options)

    def on_failure(self, hook: Hook) -> Hook:
        """Call `hook(job, error)` in the worker after each failed attempt, for a service that collects errors.

            @app.on_failure
            def report(job, error):
                sentry_sdk.capture_exception(error)

        The hook runs in the handler's slot once the handler has ended; several hooks run in the order of registration.
        An attempt that ran past its timeout has failed by `JobTimeout`. An attempt that is returned, or whose lease
        expires, has not failed. An error of a hook is logged and changes nothing. A worker that dies calls no hook.
        """
        self.registry.on_failure.append(hook)
        return hook

    def submit(self, function: HandlerFunction, *, kind: str, **options: Unpack[HandlerOptions]) -> int:
        """Give the running fleet a handler for `kind`, and return its version, higher than any before.

        The function is pickled by value (cloudpickle), with everything that it refers to in its own module. The modules
        that it imports must be installed on the workers, which load the function within seconds. A kind that the
        fleet's application handles keeps its handler. The fleet must have the same signing key as this application.

        Raises:
          SubmissionsOff: no signing key is set, or `submissions` is false.
          BadArgument, NotTransactional: as for `handler`.
          HandlerTooLarge: it is longer than 90,000 bytes.
          HandlerNotPacked: it refers to something that cannot be pickled.
        """
        if not self.config.signing_key:
            raise SubmissionsOff(reason="no signing_key is set")
        if not self.config.submissions:
            raise SubmissionsOff(
                reason="the configuration says submissions = false",
                remedy="put the handler into the application's code and restart the fleet, or drop that setting",
            )
        code = submitted_handlers.pack_handler(kind, function_of(function), **options)
        return submitted_handlers.submit(self.shards, kind, code, key=self.config.signing_key.encode())

    def explain(self, item_id: str | bytes) -> Explanation:
        """Say why an item of any tenant is not running, or how it ended.

        Searches the first few thousand active queues of each shard, and external stores by the item's id. If you know
        the tenant, call `app.tenant(...).explain`: it reads one queue.

        Args:
          item_id: the 16 bytes that `enqueue` returned, or the name that it was given.

        Raises:
          BadArgument: `item_id` is neither text nor bytes.
        """
        stores = self.externals
        on_shards = explain(self.shards, checked_id(item_id), stores=stores)
        return explain_in_stores(on_shards, self.shards, stores, item_id, None)

    def find_items(
        self, keys: Mapping[str, IndexValue] | None = None, /, *, limit: int = 100, **named: IndexValue
    ) -> list[FoundItem]:
        """Return items of all tenants that were enqueued with these keys, dead letters included.

            app.tenant("shop/alice").enqueue("receipt", keys={"order": 7, "customer": "c-12"})
            for item in app.find_items(order=7):
                print(item.tenant, item.state)
                item.cancel()

        Asks each shard, also while tenants move. It misses no item that is there from the beginning of the call to its
        end. Oldest first; changes nothing. An item that ends meanwhile may be among them.

        Args:
          keys: names and values, for names that are no Python names, or are `limit`.
          limit: how many at most, 1 to 10,000.
          named: further keys. An item must have all of them.

        Raises:
          BadArgument: no key, more than four, or one that `ItemOptions.keys` does not allow; `limit` is out of range.
          SearchUnfinished: tenants kept moving, and an item may have been missed.
          StoreUnavailable (on FoundationDB: FDBError): a shard does not answer, so no answer would be whole.
        """
        if keys is not None:
            check_mapping(keys)
        return find_items(self.shards, self._database, {**(keys or {}), **named}, limit=limit)

    async def afind_items(
        self, keys: Mapping[str, IndexValue] | None = None, /, *, limit: int = 100, **named: IndexValue
    ) -> list[FoundItem]:
        """Find items as `find_items` does, and let the event loop go on meanwhile."""
        return await self.shards.calls.run(partial(self.find_items, keys, limit=limit, **named))

    def retry_dead_letters(self, criteria: DeadLetterFilter, *, dry_run: bool = False) -> BulkResult:
        """Put all matching dead letters back into their queues, due now; see `fairlead.dead_letters`.

        Two hundred items per transaction. After an interruption, a second call continues with the remaining dead
        letters. An item that fails again meanwhile stays a dead letter.

        Args:
          criteria: `DeadLetterFilter(kind=send_mail, error="timed out")`; `DeadLetterFilter()` means all, of all
            shards and external stores.
          dry_run: count, and change nothing.

        Raises:
          BadArgument: the kind or the tenant of `criteria` cannot be one.
          UnknownShard, UnknownStore: `criteria` names a shard or an external store that does not exist.
          StoreUnavailable: an external store does not answer; what was done before stays.
        """
        return retry_all(self.shards, criteria, self.operator, stores=self.externals, dry_run=dry_run)

    def discard_dead_letters(self, criteria: DeadLetterFilter, *, dry_run: bool = False) -> BulkResult:
        """Delete all matching dead letters for good; see `retry_dead_letters`."""
        return discard_all(self.shards, criteria, self.operator, stores=self.externals, dry_run=dry_run)

    @property
    def control(self) -> Control:
        """Pausing and resuming tenants, kinds and shards while the fleet runs."""
        return Control(self._shards_now, self.operator, self.random)

    # --- Tenants and their items ---

    def transact(self, body: Callable[[SpanningTransaction], R], *, wait: Duration = 5.0) -> R:
        """Run `body(tx)` in one transaction on tenants of any shards, and return its result once it is durable.

            def pay(tx):
                alice, bob = tx.on("bank/alice"), tx.on("bank/bob")
                alice.add(("balance",), -10)
                bob.add(("balance",), 10)
                bob.enqueue("mail", {"about": "payment"})
            app.transact(pay)

        All of it happens or nothing, as if no other transaction ran at the same time. `body` may run several times, so
        it must only read and write through `tx`. If all its tenants live on one shard, it costs what
        `tenant.transact` does. Over two shards it commits twice before it returns, and once after it. Meanwhile other
        transactions on tenants of the second shard wait, for some milliseconds.

        Args:
          wait: how long to wait in all while other transactions across shards have locked a tenant; seconds or a
            `timedelta`.

        Raises:
          BadArgument: `body` is an async function; `wait` is no duration.
          TenantBusy: `wait` is over. Nothing was changed.
          TenantMoved: a tenant moves on and on, or lives on a shard that is not configured. Nothing was changed.
          NestedTransaction: this is called by the body of a transaction, or by a step of a workflow.
          StoreError (on FoundationDB: FDBError): an error that a retry does not cure, such as 2101: it writes more to
            one shard than half of what a transaction there may write.
          ResultUnknown: the shard of the first tenant failed in the middle of the commit.
          What `body` raises: nothing was changed.
        """
        shards = self.shards
        with Enqueueing(tenant=None) as enqueueing:
            try:
                return run_across_shards(
                    shards,
                    body,
                    wait_us=duration_us("wait", wait),
                    clock=self.clock,
                    random=self.random,
                    apply_later=shards.calls.start,
                    enqueuer=enqueueing,
                )
            except TenantMoved as moved:
                raise shards.named(moved) from None

    async def atransact(self, body: Callable[[SpanningTransaction], R], *, wait: Duration = 5.0) -> R:
        """Run `body` as `transact` does, and let the event loop go on meanwhile; see `TenantDatabase.atransact`."""
        check_plain(body)
        return await self.shards.calls.run(partial(self.transact, body, wait=wait))

    def snapshot(
        self, tenants: Iterable[str | Tenant | TenantDatabase], *, keep: Duration | None = None
    ) -> dict[Tenant, Snapshot]:
        """Take a snapshot of each of some tenants, one commit after the other; see `TenantDatabase.snapshot`.

        Each shows its tenant at one moment. The moments of two tenants differ. If one fails, those before it are kept:
        with `keep`, housekeeping drops them in time.

        Raises:
          BadArgument: one of `tenants` names no tenant; `keep` is no duration.
          What `TenantDatabase.snapshot` raises.
        """
        if isinstance(tenants, str):
            raise BadArgument(argument="tenants", value=tenants, allowed='a list of tenants, such as ["shop/alice"]')
        databases = [self.tenant(each) for each in tenants]
        return {database.tenant: database.snapshot(keep=keep) for database in databases}

    def move(self, tenant: str | Tenant | TenantDatabase, *, to: str, mb_per_s: float = MB_PER_S) -> TenantMove:
        """Begin to move a tenant to another shard, with its data, its queue and its workflows, and return at once.

            move = app.move("shop/alice", to="us2")

        A running fleet carries it out, and `move.result()` waits for its end. Meanwhile the tenant's users write and
        its items run. At the end all transactions on the tenant wait for some milliseconds. Then they are repeated on
        the other shard, and no transaction fails for that. One that has used `.raw` gets `TenantMoved`.

        Args:
          to: the name of the shard.
          mb_per_s: how fast to copy, 0.01 to 10,000 megabytes per second.

        Raises:
          BadArgument: `tenant` names none, or `mb_per_s` is out of range.
          UnknownShard: there is no such shard.
          MoveRefused: there is no such tenant, or it lives there already.
          MoveUnderWay: it moves already.
        """
        named, by = tenant_of(tenant), self.operator
        return begin_move(self.shards, named, to, mb_per_s=mb_per_s, by=by, clock=self.clock, random=self.random)

    def cancel_move(self, tenant: str | Tenant | TenantDatabase) -> bool:
        """Ask for the end of a tenant's move, whoever has begun it; see `TenantMove.cancel`.

        Raises:
          BadArgument: `tenant` names none.
          StoreUnavailable: a shard cannot be read, and no other one knows of a move.
          MoveHeldUp: a newer version carries it out, so this one cannot end it.
        """
        return cancel_move(self.shards, tenant_of(tenant), by=self.operator)

    def plan_move(self, tenant: str | Tenant | TenantDatabase, *, to: str) -> MovePlan:
        """Read what a move would copy, and check it against the limits of the destination's engine; change nothing.

        Raises:
          What `move` raises; MoveRefused also if the destination does not store a key or a value of the tenant.
        """
        return plan_move(self.shards, tenant_of(tenant), to)

    def moves(self) -> list[MoveView]:
        """Return the moves of tenants: first those under way, then those ended within a day; the youngest first."""
        return list_moves(self.shards)

    def rebalance(
        self, *, to: list[str], dry_run: bool = False, tenants_max: int = 100, mb_per_s: float = MB_PER_S
    ) -> Rebalance:
        """Begin to move tenants to shards that were added, until each shard has about as many as any other.

        A tenant moves if rendezvous hashing over all shards chooses one of `to`. So nobody moves twice, and a second
        call goes on where the first one has stopped.

        Args:
          to: the names of the shards that get tenants.
          dry_run: choose, and begin nothing.
          tenants_max: begin so many moves at most, 1 to 100,000; call again until the answer is `whole`.
          mb_per_s: of each move; see `move`.

        Raises:
          BadArgument: an argument is out of range.
          UnknownShard: there is no such shard.
        """
        if not to or isinstance(to, str):
            raise BadArgument(argument="to", value=to, allowed='a list of names of shards, such as ["us2"]')
        if isinstance(tenants_max, bool) or not isinstance(tenants_max, int) or not 1 <= tenants_max <= TENANTS_MAX:
            raise BadArgument(argument="tenants_max", value=tenants_max, allowed=f"1 to {TENANTS_MAX:,}")
        for name in to:
            self.shards[name]
        planned, whole = plan_rebalance(self.shards, to, tenants_max=tenants_max)
        return Rebalance(planned if dry_run else list(self._begin_moves(planned, mb_per_s)), whole)

    def _begin_moves(self, planned: list[tuple[Tenant, str]], mb_per_s: float) -> Iterator[tuple[Tenant, str]]:
        """Begin moves, and yield those that have begun: another operator may have moved a tenant meanwhile."""
        for tenant, name in planned:
            with suppress(MoveRefused, MoveUnderWay):
                self.move(tenant, to=name, mb_per_s=mb_per_s)
                yield tenant, name

    def serve_system_kinds(self) -> None:
        """Add the handlers that a fleet runs beside the application's own ones: of moves, and of records."""
        if MOVE_KIND not in self.registry.handlers:
            self.registry.add(move_handler(self._shard_with_id, self._shard_named))
            repairs = repair_handlers(self._shards_now, self._locations_of)
            for handler in (*cleanup_handlers(self._shards_now), *repairs):
                self.registry.add(handler)
            self.registry.add(
                change_handler(self._shards_now, self._locations_of, lambda: self.shards.parallel.run_all)
            )

    def _locations_of(self, type_name: str) -> Locations | None:
        declared = self.record_types.get(type_name)
        return None if declared is None else declared.locations

    def _shard_with_id(self, shard_id: bytes) -> Shard | None:
        return self.shards.with_id(shard_id)

    def _shard_named(self, name: str) -> Shard:
        return self.shards[name]

    def tenant(self, app: str | Tenant | TenantDatabase, user: str | None = None) -> TenantDatabase:
        """Return a tenant's database. Nothing is read or written: a tenant exists once it has a key or an item.

        Args:
          app, user: the two names; or one argument: the tenant as it is printed, "APP/USER", or a `Tenant`, such as
            `job.tenant`. A slash in the name of an app is written twice in "APP/USER".

        Raises:
          BadArgument: a name is not text, is empty, or is longer than 96 bytes in UTF-8.
        """
        return app if isinstance(app, TenantDatabase) else self._database(tenant_of(app, user))

    @overload
    def records(
        self,
        name: str,
        *,
        unique: Sequence[str] = (),
        lookup: Sequence[str] = (),
        type: None = None,
        tenant: TenantOfKey | None = None,
        normalize: Mapping[str, str] | None = None,
        repair: bool = False,
    ) -> Records[dict[str, Any]]: ...

    @overload
    def records(
        self,
        name: str,
        *,
        unique: Sequence[str] = (),
        lookup: Sequence[str] = (),
        type: type[V],
        tenant: TenantOfKey | None = None,
        normalize: Mapping[str, str] | None = None,
        repair: bool = False,
    ) -> Records[V]: ...

    def records(
        self,
        name: str,
        *,
        unique: Sequence[str] = (),
        lookup: Sequence[str] = (),
        type: type[Any] | None = None,
        tenant: TenantOfKey | None = None,
        normalize: Mapping[str, str] | None = None,
        repair: bool = False,
    ) -> Records[Any]:
        """Return the records of a type: each is found by any of its keys, on whichever shard it lies.

            accounts = app.records("account", unique=("email", "phone"), lookup=("city",))
            accounts.create("u1", {"email": "a@x.com", "phone": None, "city": "Ulm"})
            accounts.find(email="a@x.com")

        Nothing is read or written until one of its methods is called.

        Args:
          name: of the type, text of 1 to 32 bytes that does not begin with "fairlead.".
          unique: fields whose values no two records share.
          lookup: fields by which all records with a value are found.
          type: a `msgspec.Struct` or dataclass; None: values are dicts of plain data.
          tenant: returns the tenant that holds the record of a key, a `Tenant` or "APP/USER"; always the same one.
            None: records lie in slots, which are tenants of their own, spread over all shards.
          normalize: how values of a field are compared: "casefold" is the one way but the default.
          repair: while the shard of an index record does not answer, write creates and added keys all the same, and let
            a fleet repair that later. For this time a value is not unique: see `Records`.

        Raises:
          BadArgument: a name is empty, too long, or is given twice; a field is named "keep", "limit" or "self";
            `normalize` names an unknown field or way; `tenant` is no function.
        """
        if tenant is not None and not callable(tenant):
            allowed = 'a function of a record\'s primary key, such as lambda key: f"shop/{key}"'
            raise BadArgument(argument="tenant", value=tenant, allowed=allowed)
        fields = declared_fields(unique, lookup, normalize or {})
        type_name = check_type_name(name)

        def placed(key: str) -> Tenant:
            assert tenant is not None
            return named_tenant(tenant(key))

        locations = Locations(type_name, None if tenant is None else placed)
        declared: Records[Any] = Records(
            self._shards_now,
            locations,
            fields,
            Values(type),
            clock=lambda: self.clock,
            random=lambda: self.random,
            operator=lambda: self.operator,
            repair=repair,
        )
        self.record_types[name] = declared
        return declared

    def reserve(
        self, tenant: str | Tenant | TenantDatabase, unique_key: Any, *, zone: str = DEFAULT_ZONE
    ) -> Reservation:
        """Return a block that holds a unique key, for an item that a transaction on the tenant enqueues.

            alice = app.tenant("shop/alice")
            with app.reserve("shop/alice", ("report", "2026-11")) as reserved:
                alice.transact(lambda tr: tr.enqueue("report", reserved=reserved))

        The item exists if and only if the transaction commits, as by `tr.enqueue`. If none commits, the key is free
        again at the end of the block. A coroutine writes `async with`, and lets the event loop go on meanwhile.

        Args:
          unique_key: text, bytes, a whole number, or a tuple of these; no other item of the application has it.
          zone: the queue zone of the item.

        Raises:
          BadArgument: an argument is outside its range.
          Taken, Interrupted, IndexUnavailable: by the block: see `TenantDatabase.enqueue`.
        """
        return Reservation(self.shards, tenant_of(tenant), check_zone(zone), unique_key, self.random)

    def local(self, kind: str | HasKind, *, shard: str | None = None) -> TenantDatabase:
        """Return where local items of `kind`, those without a tenant, live: on `shard`, default the kind's own.

        Raises:
          BadArgument: `kind` cannot be the name of a kind.
          UnknownShard: there is no such shard.
        """
        return self._database(local_tenant(kind_of(kind)), shard)

    def enqueue_local(
        self,
        kind: str | HasKind,
        payload: Any = None,
        *,
        shard: str | None = None,
        **options: Unpack[ItemOptions],
    ) -> EnqueuedHandle:
        """Enqueue one item that belongs to no tenant. The local items of a kind share one turn, like a tenant's.

        Args and errors: see `TenantDatabase.enqueue`; `shard` names one, default the kind's own.
        """
        return self.local(kind, shard=shard).enqueue(kind, payload, **options)

    def enqueue_everywhere(
        self, kind: str | HasKind, payload: Any = None, **options: Unpack[ItemOptions]
    ) -> dict[str, Enqueued]:
        """Enqueue one local item on each shard, one transaction after the other; see `enqueue_local`.

        If a shard fails, those before it have their item: with an `item_id`, calling again is harmless.
        """
        item = new_item(kind, payload, **options)
        return {name: self.local(kind, shard=name).enqueue_many([item])[0] for name in self.shards}

    def enqueue_many(
        self,
        items: Iterable[tuple[TenantDatabase | Tenant | str, NewItem]],
        *,
        zone: str = DEFAULT_ZONE,
        within: Any = None,
    ) -> list[Enqueued]:
        """Enqueue items of many tenants; return the result of each, in order.

            app.enqueue_many((f"shop/{user}", fairlead.new_item("mail", {"about": "sale"})) for user in users)

        Each tenant is given as to `tenant`: `app.tenant(...)`, a `Tenant`, or "APP/USER".

        A batch (up to 500 items or 1 MB of payloads of one shard) is one transaction: all of it or nothing. If a later
        batch fails, earlier ones stay; with ids of your own, calling again is harmless.

        Args:
          within: see `TenantDatabase.enqueue`: all items are there if and only if that transaction commits. Two calls
            that enqueue the same ids do not deadlock.

        Raises:
          BadArgument: one of `items` is no pair of a tenant and an item; `zone` cannot be the name of a zone.
        """
        if within is not None:
            return self._external_access().enqueue(None, zone, self._of_tenants(items), within)[1]
        pairs = ((self.tenant(tenant), item) for tenant, item in map(checked_pair, items))
        return bulk_enqueue.enqueue_many(pairs, zone=zone)

    async def aenqueue_many(
        self,
        items: Iterable[tuple[TenantDatabase | Tenant | str, NewItem]],
        *,
        zone: str = DEFAULT_ZONE,
        within: Any = None,
    ) -> list[Enqueued]:
        """Enqueue items as `enqueue_many` does, and let the event loop go on meanwhile.

        Args:
          within: an asynchronous connection; see `TenantDatabase.aenqueue`.
        """
        calls = self.shards.calls
        if within is None:
            return await calls.run(partial(self.enqueue_many, list(items), zone=zone))
        return (await self._external_access().aenqueue(None, zone, self._of_tenants(items), within, calls))[1]

    def _of_tenants(self, items: Iterable[tuple[TenantDatabase | Tenant | str, NewItem]]) -> list[OfTenant]:
        return [OfTenant(tenant_of(tenant), item) for tenant, item in map(checked_pair, items)]

    def _database(self, tenant: Tenant, shard: str | None = None) -> TenantDatabase:
        self._shards_now()  # Raises NoShards now; the application may be configured anew before the database is used.
        return TenantDatabase(self._shards_now, tenant, shard_name=shard, externals=self._external_access())

    def _external_access(self) -> ExternalAccess:
        return ExternalAccess(lambda: self.externals, lambda: self.clock, lambda: self.random, self._check_external)

    def _check_external(self, item: NewItem, store: str) -> None:
        if self._known_kinds_only:
            check_known(self.registry, item.kind)
        check_runs_in(self.registry, item.kind, store)

    def _shards_now(self) -> Shards:
        shards = self._shards
        return self._named_shards() if shards is None else shards

    def _named_shards(self) -> Shards:
        with self._lock:
            if self._shards is None:
                if not self.config.shards:
                    raise NoShards
                self._shards = Shards(
                    self.config.shards,
                    clock=self.clock,
                    random=self.random,
                    settings=self.config.zones,
                    part_count=self.config.part_count,
                )
                if self._known_kinds_only:
                    self._shards.check_kind = partial(check_known, self.registry)
            return self._shards


class SubmissionsOff(QueueError):
    """Handlers cannot be submitted: no signing key is set, or the configuration says `submissions = false`.

    Do: make a key, `export FAIRLEAD_SIGNING_KEY=$(openssl rand -hex 32)`, and start the fleet and submit with that
    variable in the environment. Or put the handler into the application's code, and restart the fleet.
    """

    message = "submitted handlers are off"
