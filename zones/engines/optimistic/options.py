"""Options of a transaction. Options without meaning on one machine are accepted, so that layers need no condition.

Source: the binding's `fdboptions.py`. `on_error` keeps the persistent ones (timeout, retry limit, maximum delay, size
limit); `reset` keeps none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from fairlead.zones.engines.api.errors import CLIENT_INVALID_OPERATION, INVALID_OPTION_VALUE

TRANSACTION_BYTES_MAX: Final = 10_000_000
_INT_MAX: Final = 2**31 - 1

# Options of clusters, networks, priorities and logs. They change nothing on one machine.
WITHOUT_EFFECT: Final = frozenset(
    {
        "causal_write_risky",
        "causal_read_risky",
        "causal_read_disable",
        "automatic_idempotency",
        "read_priority_low",
        "read_priority_normal",
        "read_priority_high",
        "read_server_side_cache_enable",
        "read_server_side_cache_disable",
        "priority_batch",
        "priority_system_immediate",
        "durability_datacenter",
        "durability_risky",
        "debug_transaction_identifier",
        "log_transaction",
        "transaction_logging_max_field_length",
        "server_request_tracing",
        "lock_aware",
        "read_lock_aware",
        "report_conflicting_keys",
        "tag",
        "auto_throttle_tag",
        "span_parent",
        "expensive_clear_cost_estimation_enable",
        "use_grv_cache",
        "include_port_in_address",
        "use_provisional_proxies",
    }
)


@dataclass
class PersistentOptions:
    """The options that survive `on_error`."""

    timeout_ms: int = 0
    retry_limit: int = -1
    retry_delay_max_ms: int = 1_000
    size_bytes_max: int = TRANSACTION_BYTES_MAX


class Configurable(Protocol):
    """The part of a transaction that its options use."""

    persistent_options: PersistentOptions

    def apply_timeout(self) -> None:
        """Apply the timeout of `persistent_options`."""
        ...

    def skip_next_write_conflict(self) -> None:
        """Let the next write add no write conflict."""
        ...

    def disable_own_writes(self) -> bool:
        """Let reads see only the store; False if the transaction has already read or written."""
        ...

    def nest_snapshot_own_writes(self, step: int) -> None:
        """Count up or down whether snapshot reads see own writes."""
        ...

    def defer(self, code: int, *, remedy: str = "", **fields: object) -> None:
        """Fail the next step with this error."""
        ...


class TransactionOptions:
    """The setters of one transaction, named as in the binding. A bad value fails the transaction's next step."""

    __slots__ = ("_transaction",)

    def __init__(self, transaction: Configurable) -> None:
        self._transaction = transaction

    def set_timeout(self, timeout_ms: int) -> None:
        """Cancel the transaction (1031) this long after its creation; 0: never."""
        if self._checked(0 <= timeout_ms <= _INT_MAX, timeout_ms=timeout_ms):
            self._transaction.persistent_options.timeout_ms = timeout_ms
            self._transaction.apply_timeout()

    def set_retry_limit(self, retries: int) -> None:
        """Let `on_error` raise after this many retries; -1: never."""
        if self._checked(-1 <= retries <= _INT_MAX, retry_limit=retries):
            self._transaction.persistent_options.retry_limit = retries

    def set_max_retry_delay(self, delay_ms: int) -> None:
        """Bound the wait of `on_error`."""
        if self._checked(0 <= delay_ms <= _INT_MAX, max_retry_delay_ms=delay_ms):
            self._transaction.persistent_options.retry_delay_max_ms = delay_ms

    def set_size_limit(self, size_bytes: int) -> None:
        """Fail a larger commit with 2101."""
        if self._checked(32 <= size_bytes <= TRANSACTION_BYTES_MAX, size_limit_bytes=size_bytes):
            self._transaction.persistent_options.size_bytes_max = size_bytes

    def set_next_write_no_write_conflict_range(self) -> None:
        """Let the next write (one) add no write conflict."""
        self._transaction.skip_next_write_conflict()

    def set_read_your_writes_disable(self) -> None:
        """Let reads see the store only. Refused (2000) after the first read or write."""
        if not self._transaction.disable_own_writes():
            self._transaction.defer(CLIENT_INVALID_OPERATION, option="read_your_writes_disable")

    def set_snapshot_ryw_disable(self) -> None:
        """Let snapshot reads see the store only. Nests with `set_snapshot_ryw_enable`."""
        self._transaction.nest_snapshot_own_writes(-1)

    def set_snapshot_ryw_enable(self) -> None:
        """Undo one `set_snapshot_ryw_disable`."""
        self._transaction.nest_snapshot_own_writes(1)

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("set_") and name[len("set_") :] in WITHOUT_EFFECT:
            return _accept
        raise AttributeError(name)

    def _checked(self, valid: bool, **fields: Any) -> bool:
        if not valid:
            self._transaction.defer(INVALID_OPTION_VALUE, **fields)
        return valid


def _accept(param: object = None) -> None:
    """Take an option that has no effect here."""
