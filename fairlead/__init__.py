"""What a user of the queue touches.

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
    store_threads    threads that wait for a store, so that coroutines need not
    handle           an item that was enqueued: its result, its end
    bulk_enqueue     many items, few transactions
    views            items as they are shown
    explanation      why an item is not running, or what became of it
    operator         who acts, as the audit log names it
    control          pausing, resuming, limiting and weighting while the fleet runs
    dead_letters     dead letters retried or discarded in bulk
    audit_log        what operators have done, on all shards
    shards           an application's stores, opened when used
    config           settings in force
    config_layers    where each came from
    loading          `shop:app` becomes an application
    fleet            an application's consumer, started and drained
    status           what is stored and who serves it, at a glance
    telemetry/       where traces, metrics and log lines go
    queries/         what the dashboard and `fairlead top` show of the stores
    error_text       errors in words
    formatting       times and payloads as people read them
    testing          everything that is due, run in this process
    app_simulation/  an application in hostile worlds, for `fairlead simulate shop:app`
    clock            the machine's time: nothing else in the product reads it
    cli/             the command `fairlead`
    dashboard/       its web pages
    demo/            real work through the real system, for `fairlead demo`
May import: actors, zones. Imported by: nothing of the product. Importing this loads neither Ray nor the FoundationDB
client. Everything a user needs is a name right here.
"""

from fairlead.actors.execution.job import Job, NoStoreHere
from fairlead.actors.execution.retry import Retry
from fairlead.actors.execution.runner import JobTimeout, TransactionalTooLong
from fairlead.actors.execution.submitted_handlers import HandlerNotPacked
from fairlead.actors.handlers import DuplicateHandler, HandlerOptions, NotTransactional, PermanentError
from fairlead.actors.settings import BadSettings, ConsumerSettings
from fairlead.app import App, SubmissionsOff
from fairlead.argument_checks import UnknownKind
from fairlead.config import Config
from fairlead.config_layers import BadConfig
from fairlead.control import Control
from fairlead.dead_letters import BulkResult
from fairlead.explanation import Attempts, Cause, Explanation
from fairlead.handle import EnqueuedHandle, Handle, ItemFailed, NoResult, ResultPending
from fairlead.loading import NotImportable, ReferenceNotFound, load_app
from fairlead.operator import Operator
from fairlead.registered_handler import RegisteredHandler
from fairlead.shards import NoShards, StoreMissing, UnknownShard
from fairlead.tenant_database import NotADeadLetter, TenantDatabase
from fairlead.views import DeadLetterView, ItemView, State
from fairlead.zones.engines import StoreError, StoreUnavailable
from fairlead.zones.engines.api.errors import ResultUnknown
from fairlead.zones.errors import (
    BackupRefused,
    BadArgument,
    ItemGone,
    ItemUnreadable,
    LeaseLost,
    NotVested,
    PayloadDamaged,
    PayloadNotData,
    PayloadTooLarge,
    PolicyUnreadable,
    QueueError,
    ShardRefused,
    TenantMoved,
)
from fairlead.zones.layout import Tenant
from fairlead.zones.queue.dead_letter_search import DeadLetterFilter
from fairlead.zones.queue.items import Enqueued, EnqueueOptions, EnqueueStatus, ItemOptions, NewItem, new_item
from fairlead.zones.queue.results import ResultNotKept
from fairlead.zones.records import Progress
from fairlead.zones.settings import ZoneSettings
from fairlead.zones.submitted_handlers import HandlerTooLarge
from fairlead.zones.tenant_transaction import ApplicationTransaction, TenantTransaction

__all__ = [
    # An application and its tenants
    "App",
    "TenantDatabase",
    "TenantTransaction",
    "ApplicationTransaction",
    "Tenant",
    "load_app",
    # Handlers
    "RegisteredHandler",
    "HandlerOptions",
    "Job",
    "Retry",
    "PermanentError",
    "Progress",
    # Items
    "Handle",
    "EnqueuedHandle",
    "ItemOptions",
    "EnqueueOptions",
    "new_item",
    "NewItem",
    "Enqueued",
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
    "HandlerNotPacked",
    "HandlerTooLarge",
    "DuplicateHandler",
    "ItemFailed",
    "ItemGone",
    "ItemUnreadable",
    "JobTimeout",
    "LeaseLost",
    "NoResult",
    "NoShards",
    "NoStoreHere",
    "NotADeadLetter",
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
    "ShardRefused",
    "StoreMissing",
    "SubmissionsOff",
    "TenantMoved",
    "TransactionalTooLong",
    "UnknownKind",
    "UnknownShard",
    "StoreError",
    "StoreUnavailable",
    "ResultUnknown",
]
