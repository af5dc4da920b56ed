"""The public interface.

    import fairlead

    app = fairlead.App("embedded:./data")

    @app.handler("receipt")
    def send_receipt(job):
        print(job.tenant, job.payload)

    send_receipt.enqueue("shop/alice", {"order": 7})

Read in this order:
    app              an application: handlers, periodic items, tenants, submitted handlers
    argument_checks  checks of its methods' arguments
    registered_handler  a decorated function, which enqueues its own items
    handler_types    types of handlers and hooks, for type checkers
    tenant_database  one tenant's keys and queue
    snapshots        earlier states of its keys
    store_threads    threads that wait for a store, so that coroutines do not block their event loop
    watch_wait       waiting for a watch on the caller's thread
    tenant_locks     locks of tenants, held outside of workflows
    lock_threads     threads that keep such locks
    handle           an item that was enqueued: its result, its end
    found_items      items that are found by their keys
    bulk_enqueue     many items, few transactions
    views            items as plain data, for commands and pages
    recorded_steps   the steps of a workflow
    causes           the causes why an item is not running
    workflow_explanation  what the steps of a workflow add to that
    explanation      why an item is not running, or how it ended
    external_stores  databases whose queues lie beside a user's data
    external_explanation  why an item in one of them is not running
    external_checks  what is wrong with one of them
    operator         the person and the program that the audit log names
    control          pausing, resuming, limiting and weighting while the fleet runs
    dead_letters     dead letters retried or discarded in bulk
    external_stores  databases of users in which queues lie
    external_queues  what can be done with the items of such queues
    move_views       moves of tenants as plain data
    moves            tenants that move between shards
    audit_log        what operators have done, on all shards
    record_type      records that are found by any key, and unique across shards
    unique_items     items that are unique in the whole application
    parallel_calls   calls on several shards at once
    shards           an application's stores, opened when used
    config           the settings in force
    config_layers    arguments, environment and file, which give the settings
    loading          `shop:app` becomes an application
    fleet            an application's consumer, started and drained
    status           depths, ages, consumers and policies of a shard
    telemetry/       exports of traces, metrics and log lines
    queries/         what the dashboard and `fairlead top` read from the stores
    error_text       errors in words
    formatting       times and payloads as text and JSON
    testing          runs all due items in this process, for tests
    drained_stores   what it does with queues in external stores
    app_simulation/  an application in the simulator, for `fairlead simulate shop:app`
    clock            the machine's time: nothing else in the product reads it
    cli/             the command `fairlead`
    dashboard/       its web pages
    demo/            the application of `fairlead demo`
May import: workflows, actors, records, zones. Imported by: nothing of the product. Importing this loads neither Ray nor
the FoundationDB client. This module has all names that a user needs.
"""

from fairlead.actors.execution.job import Job, NoStoreHere
from fairlead.actors.execution.retry import Retry
from fairlead.actors.execution.runner import JobTimeout, TransactionalTooLong
from fairlead.actors.execution.submitted_handlers import HandlerNotPacked
from fairlead.actors.handlers import (
    DuplicateHandler,
    HandlerOptions,
    NotTransactional,
    PermanentError,
    UnfitCode,
    WorkflowOptions,
    WrongStore,
)
from fairlead.actors.settings import BadSettings, ConsumerSettings
from fairlead.app import App, SubmissionsOff
from fairlead.argument_checks import UnknownKind
from fairlead.bulk_result import BulkResult
from fairlead.config import Config
from fairlead.config_layers import BadConfig
from fairlead.control import Control
from fairlead.explanation import Attempts, Cause, Explanation
from fairlead.external_queues import ExternalQueues, NoWorkflow
from fairlead.external_stores import PsycopgMissing, UnknownStore
from fairlead.found_items import FoundItem, SearchUnfinished
from fairlead.handle import EnqueuedHandle, Handle, NoResult, ResultPending
from fairlead.index_changes import IndexChange, IndexChangeView, Violation
from fairlead.loading import NotImportable, ReferenceNotFound, load_app
from fairlead.move_views import MoveView
from fairlead.moves import MovePending, MovePlan, NoMove, Rebalance, TenantMove
from fairlead.operator import Operator
from fairlead.record_repairs import SharedValue
from fairlead.record_type import Record, Records
from fairlead.recorded_steps import AwayParticipant, RunView, StepView
from fairlead.records.alternate_keys import UnknownNormalizer
from fairlead.records.errors import (
    Changed,
    CommitUnknown,
    DefinitionDiffers,
    Exists,
    IndexAway,
    IndexUnavailable,
    Interrupted,
    KeyAdded,
    NoSuchRecord,
    RecordError,
    RecordUnreadable,
    ReservationEnded,
    Taken,
)
from fairlead.records.on_shards.index_changes import IndexChanging, IndexExists, NoIndex
from fairlead.records.on_shards.scrubbing import ShardScrub
from fairlead.registered_handler import RegisteredHandler
from fairlead.shards import NoShards, StoreMissing, UnknownShard
from fairlead.snapshots import KeyChange, OldKeys, Snapshot
from fairlead.tenant_database import TenantDatabase
from fairlead.tenant_locks import HeldLock, LockInTransaction, TenantLock
from fairlead.unique_items import Reservation
from fairlead.views import DeadLetterView, ItemView, State
from fairlead.workflows.async_context import AsyncWorkflowContext
from fairlead.workflows.child_jobs import UNFINISHED, Call
from fairlead.workflows.context import WorkflowContext, child
from fairlead.workflows.errors import (
    AfterFinish,
    BranchNotEnded,
    CallNotAwaited,
    CallRefused,
    CallTimeout,
    CheckpointLoop,
    CheckpointUnderLock,
    EffectUnknown,
    LockOrder,
    OtherThread,
    PayloadMismatch,
    ReadOnly,
    SignalTimeout,
    StepInStep,
    StepTooLong,
    TooManyLocks,
    TooManySteps,
)
from fairlead.workflows.locks import AsyncWorkflowLock, WorkflowLock
from fairlead.workflows.recorded_errors import StepFailed
from fairlead.workflows.replay import CheckpointBesideSteps, ConcurrentSteps, StepsDiffer
from fairlead.zones.engines import StoreError, StoreUnavailable
from fairlead.zones.engines.api.errors import ResultUnknown
from fairlead.zones.errors import (
    BackupRefused,
    BadArgument,
    Busy,
    ItemFailed,
    ItemGone,
    ItemUnreadable,
    LeaseLost,
    LockLost,
    NotADeadLetter,
    NotVested,
    PayloadDamaged,
    PayloadNotData,
    PayloadTooLarge,
    PolicyUnreadable,
    QueueError,
    RangeTooLarge,
    RawRefused,
    RestoreRefused,
    Restoring,
    RunUnreadable,
    ShardRefused,
    SnapshotGone,
    TenantBusy,
    TenantMoved,
    TooManySnapshots,
)
from fairlead.zones.layout import Tenant
from fairlead.zones.moving.errors import MoveFailed, MoveRefused, MoveUnderWay
from fairlead.zones.open_body import NestedTransaction
from fairlead.zones.postgresql.errors import (
    ForeignDatabase,
    NoTransaction,
    PostgresRefused,
    SchemaMissing,
    SchemaNewer,
    SchemaOutdated,
)
from fairlead.zones.queue.dead_letter_search import DeadLetterFilter
from fairlead.zones.queue.items import Enqueued, EnqueueOptions, EnqueueStatus, ItemOptions, NewItem, new_item
from fairlead.zones.queue.results import ResultNotKept
from fairlead.zones.records import Progress
from fairlead.zones.settings import ZoneSettings
from fairlead.zones.spanning.coordinator import SpanningTransaction
from fairlead.zones.spanning.tenant_view import NotAcrossShards
from fairlead.zones.submitted_handlers import HandlerTooLarge
from fairlead.zones.tenant_transaction import ApplicationTransaction, TenantTransaction
from fairlead.zones.workflow.cancellation import CancelOutcome
from fairlead.zones.workflow.run_records import StepKind, StepState

__all__ = [
    # An application and its tenants
    "App",
    "TenantDatabase",
    "ExternalQueues",
    "TenantTransaction",
    "ApplicationTransaction",
    "SpanningTransaction",
    "Snapshot",
    "OldKeys",
    "KeyChange",
    "Record",
    "Records",
    "Reservation",
    "IndexChange",
    "IndexChangeView",
    "SharedValue",
    "ShardScrub",
    "Violation",
    "TenantLock",
    "HeldLock",
    "Tenant",
    "load_app",
    # Handlers
    "RegisteredHandler",
    "HandlerOptions",
    "Job",
    "Retry",
    "RunUnreadable",
    "PermanentError",
    "Progress",
    # Workflows
    "WorkflowContext",
    "AsyncWorkflowContext",
    "WorkflowLock",
    "AsyncWorkflowLock",
    "WorkflowOptions",
    "child",
    "Call",
    "UNFINISHED",
    "RunView",
    "StepView",
    "StepKind",
    "StepState",
    "AwayParticipant",
    # Items
    "Handle",
    "EnqueuedHandle",
    "FoundItem",
    "ItemOptions",
    "EnqueueOptions",
    "new_item",
    "NewItem",
    "Enqueued",
    "CancelOutcome",
    "EnqueueStatus",
    "ItemView",
    "State",
    "DeadLetterView",
    # Questions and control
    "Explanation",
    "Cause",
    "Attempts",
    "Control",
    "Operator",
    "DeadLetterFilter",
    "BulkResult",
    # Moves of tenants between shards
    "TenantMove",
    "MoveView",
    "MovePlan",
    "Rebalance",
    # Configuration
    "Config",
    "ConsumerSettings",
    "ZoneSettings",
    # What can go wrong: everything raised on purpose is a QueueError, a StoreError, or on FoundationDB an FDBError
    "QueueError",
    "BackupRefused",
    "BadArgument",
    "BadConfig",
    "BadSettings",
    "Busy",
    "HandlerNotPacked",
    "HandlerTooLarge",
    "DuplicateHandler",
    "ItemFailed",
    "ItemGone",
    "ItemUnreadable",
    "WrongStore",
    "JobTimeout",
    "LeaseLost",
    "LockInTransaction",
    "LockLost",
    "MoveFailed",
    "MovePending",
    "MoveRefused",
    "MoveUnderWay",
    "NoMove",
    "NoResult",
    "SearchUnfinished",
    "Changed",
    "CommitUnknown",
    "DefinitionDiffers",
    "Exists",
    "IndexAway",
    "IndexChanging",
    "IndexExists",
    "IndexUnavailable",
    "Interrupted",
    "KeyAdded",
    "NoIndex",
    "NoSuchRecord",
    "RecordError",
    "RecordUnreadable",
    "ReservationEnded",
    "Taken",
    "UnknownNormalizer",
    "NoShards",
    "NoStoreHere",
    "NestedTransaction",
    "NotADeadLetter",
    "NotAcrossShards",
    "ReferenceNotFound",
    "NotImportable",
    "NotTransactional",
    "NotVested",
    "PayloadDamaged",
    "PayloadNotData",
    "PayloadTooLarge",
    "ResultNotKept",
    "ResultPending",
    "PolicyUnreadable",
    "RangeTooLarge",
    "RawRefused",
    "RestoreRefused",
    "Restoring",
    "ShardRefused",
    "SnapshotGone",
    "StoreMissing",
    "SubmissionsOff",
    "TenantBusy",
    "TenantMoved",
    "TooManySnapshots",
    "TransactionalTooLong",
    "UnknownKind",
    "UnknownShard",
    "UnknownStore",
    "NoWorkflow",
    "PsycopgMissing",
    "ForeignDatabase",
    "NoTransaction",
    "PostgresRefused",
    "SchemaMissing",
    "SchemaNewer",
    "SchemaOutdated",
    "StoreError",
    "StoreUnavailable",
    "ResultUnknown",
    # What can go wrong in a workflow: its code may catch these
    "StepFailed",
    "EffectUnknown",
    "CallTimeout",
    "SignalTimeout",
    # What can go wrong with a workflow: these end its attempt
    "UnfitCode",
    "StepsDiffer",
    "ConcurrentSteps",
    "OtherThread",
    "StepInStep",
    "StepTooLong",
    "TooManySteps",
    "LockOrder",
    "TooManyLocks",
    "CheckpointUnderLock",
    "PayloadMismatch",
    "CallNotAwaited",
    "CallRefused",
    "AfterFinish",
    "CheckpointLoop",
    "BranchNotEnded",
    "CheckpointBesideSteps",
    "ReadOnly",
]
