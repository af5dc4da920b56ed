"""Errors of a store, under FoundationDB's own numbers.

The memory and embedded engines raise `StoreError` where the binding raises `FDBError`. Both have the number in `.code`,
so callers distinguish errors by number, never by class. The message of a code is constant, so that logs can count it.
Variables are in `.fields`, and the remedy is in `.remedy`.
"""

from __future__ import annotations

from typing import Final

TRANSACTION_TOO_OLD: Final = 1007
FUTURE_VERSION: Final = 1009
NOT_COMMITTED: Final = 1020
COMMIT_UNKNOWN_RESULT: Final = 1021
TRANSACTION_CANCELLED: Final = 1025
TRANSACTION_TIMED_OUT: Final = 1031
TOO_MANY_WATCHES: Final = 1032
WATCHES_DISABLED: Final = 1034
ACCESSED_UNREADABLE: Final = 1036
PROCESS_BEHIND: Final = 1037
CLUSTER_VERSION_CHANGED: Final = 1039
OPERATION_CANCELLED: Final = 1101
IO_ERROR: Final = 1510
CLIENT_INVALID_OPERATION: Final = 2000
KEY_OUTSIDE_LEGAL_RANGE: Final = 2004
INVERTED_RANGE: Final = 2005
INVALID_OPTION_VALUE: Final = 2006
READ_VERSION_ALREADY_SET: Final = 2010
VERSION_INVALID: Final = 2011
RANGE_LIMITS_INVALID: Final = 2012
USED_DURING_COMMIT: Final = 2017
NO_COMMIT_VERSION: Final = 2021
TRANSACTION_TOO_LARGE: Final = 2101
KEY_TOO_LARGE: Final = 2102
VALUE_TOO_LARGE: Final = 2103
EXACT_MODE_WITHOUT_LIMITS: Final = 2210

DESCRIPTIONS: Final[dict[int, str]] = {
    TRANSACTION_TOO_OLD: "transaction is too old to perform reads or be committed",
    FUTURE_VERSION: "request for future version",
    NOT_COMMITTED: "transaction not committed due to conflict with another transaction",
    COMMIT_UNKNOWN_RESULT: "transaction may or may not have committed",
    TRANSACTION_CANCELLED: "operation aborted because the transaction was cancelled",
    TRANSACTION_TIMED_OUT: "operation aborted because the transaction timed out",
    TOO_MANY_WATCHES: "too many watches currently set",
    WATCHES_DISABLED: "watches cannot be set when read your writes is disabled",
    ACCESSED_UNREADABLE: "read or wrote an unreadable key",
    PROCESS_BEHIND: "storage process does not have recent mutations",
    CLUSTER_VERSION_CHANGED: "the protocol version of the cluster has changed",
    OPERATION_CANCELLED: "asynchronous operation cancelled",
    IO_ERROR: "disk i/o operation failed",
    CLIENT_INVALID_OPERATION: "invalid API call",
    KEY_OUTSIDE_LEGAL_RANGE: "key outside legal range",
    INVERTED_RANGE: "range begin key larger than end key",
    INVALID_OPTION_VALUE: "option set with an invalid value",
    READ_VERSION_ALREADY_SET: "transaction already has a read version set",
    VERSION_INVALID: "version not valid",
    RANGE_LIMITS_INVALID: "range limits not valid",
    USED_DURING_COMMIT: "operation issued while a commit was outstanding",
    NO_COMMIT_VERSION: "transaction is read-only and therefore does not have a commit version",
    TRANSACTION_TOO_LARGE: "transaction exceeds byte limit",
    KEY_TOO_LARGE: "key length exceeds limit",
    VALUE_TOO_LARGE: "value length exceeds limit",
    EXACT_MODE_WITHOUT_LIMITS: "exact mode requires a row limit",
}

# Errors after which `on_error` backs off and retries (FoundationDB's client, `Transaction::onError`). Only a cluster
# raises those of the second line.
RETRYABLE: Final = frozenset(
    {NOT_COMMITTED, COMMIT_UNKNOWN_RESULT, TRANSACTION_TOO_OLD, FUTURE_VERSION, PROCESS_BEHIND}
    | {1038, CLUSTER_VERSION_CHANGED, 1042, 1051, 1078, 1213, 1223}
)

# After these errors of a commit its result is unknown.
MAYBE_COMMITTED: Final = frozenset(
    {COMMIT_UNKNOWN_RESULT, TRANSACTION_TIMED_OUT, TRANSACTION_CANCELLED, CLUSTER_VERSION_CHANGED}
)


class StoreError(Exception):
    """An operation of a transaction failed; `.code` is FoundationDB's number for the reason.

    Args:
      code: FoundationDB's error code, such as 1020.
      remedy: what the user should do, if the code alone does not say it.
      fields: variables, such as sizes, limits and keys. Plain data, because errors are pickled between processes.
    """

    def __init__(self, code: int, *, remedy: str = "", **fields: object) -> None:
        super().__init__(code)
        self.code = code
        self.remedy = remedy
        self.fields = fields

    @property
    def description(self) -> str:
        """The constant sentence of this code, in the words of the FoundationDB client."""
        return DESCRIPTIONS.get(self.code, "unknown error")

    def __str__(self) -> str:
        details = "".join(f", {name}={value!r}" for name, value in self.fields.items())
        remedy = f". {self.remedy}" if self.remedy else ""
        return f"{self.description} ({self.code}{details}){remedy}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.code})"

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.code, self.remedy, self.fields))


def error_code(error: Exception) -> int:
    """Return the number of an error that a database of any engine raised."""
    code: int = error.code  # type: ignore[attr-defined]
    return code


class TransactionTooLong(StoreError):
    """A transaction took longer than five seconds (1007); raised by the engines in this process.

    A retry helps if something delayed it once. A transaction that always takes so long must be split: see the remedy.
    """

    def __init__(self) -> None:
        super().__init__(
            TRANSACTION_TOO_OLD,
            remedy="It took longer than the five seconds of a transaction. Split it: do the work first, outside, and "
            "apply its result in a short transaction.",
        )


class StoreUnavailable(StoreError):
    """The store cannot be opened, or cannot make this commit, for a reason outside the program.

    Nothing was lost or half done: every acknowledged commit is still there. `.reason` is one of a few constant
    sentences ("the path is a file", "the disk is full", ...); `.remedy` is what to do. An immediate retry does not
    help, so `transact` raises it.
    """

    def __init__(self, reason: str, *, remedy: str, **fields: object) -> None:
        super().__init__(IO_ERROR, remedy=remedy, reason=reason, **fields)

    @property
    def reason(self) -> str:
        """The reason, in a constant sentence."""
        return str(self.fields["reason"])

    @property
    def description(self) -> str:
        """The reason, in a constant sentence."""
        return f"store unavailable: {self.reason}"

    def __str__(self) -> str:
        details = ", ".join(f"{name}={value!r}" for name, value in self.fields.items() if name != "reason")
        return f"{self.description} ({details}). {self.remedy}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.reason!r})"


class StoreFull(StoreUnavailable):
    """The disk has no space for this commit. A smaller one may fit."""

    def __init__(self, path: str) -> None:
        super().__init__(
            "the disk is full",
            remedy="Free some space, or raise the limit on file sizes. Nothing that was acknowledged is lost.",
            path=path,
        )


class ResultUnknown(StoreUnavailable):
    """The store failed in the middle of a commit, and it is unknown whether the transaction was applied.

    The cause is a failing disk, or a process that slept for seconds while another committed for it. Never raised on
    FoundationDB: there receipts show whether a commit of unknown result was applied.
    """

    def __init__(self, url: str) -> None:
        super().__init__(
            "it is unknown whether a transaction was applied",
            remedy="Read whether its writes are there, and repeat it only if not. The disk may be failing: look at "
            "dmesg and smartctl.",
            url=url,
        )


def _rebuild(kind: type[StoreError], code: int, remedy: str, fields: dict[str, object]) -> StoreError:
    error = kind.__new__(kind)
    StoreError.__init__(error, code, remedy=remedy, **fields)
    return error
