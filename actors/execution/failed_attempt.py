"""Why an attempt failed: decided by the slot in which its handler ran.

An error is an object of the user's. To render it, or to test its class, runs the user's code, which may take long and
may raise anything. So the slot does both, as a part of the attempt. The loops, which must not stand still, get text and
a `Cause`.
"""

import os
import sys
import traceback
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from traceback import FrameSummary, TracebackException
from types import TracebackType

from fairlead.actors.execution.event_loop import EventLoopLost
from fairlead.actors.handlers import Form, Handler, UnfitCode
from fairlead.zones.engines import Clock, StoreUnavailable
from fairlead.zones.errors import ItemGone, LeaseLost, RunUnreadable, TenantMoved
from fairlead.zones.queue.results import ResultNotKept
from fairlead.zones.queue.stored_item import shortened

ERRORS_MAX = 50  # Causes, contexts and members of groups that are rendered. A loop that retries may chain thousands.
FRAMES_MAX = 1_000  # Frames of a traceback, nearest to the error: Python's own limit of recursion.
SAFE_RENDER_US = 1_000_000  # An error that took longer to render is not handed to the log, which may render it again.

_AROUND_HANDLERS = (
    "fairlead.actors.",
    "fairlead.zones.",
    "fairlead.testing",
    "fairlead.workflows.",
    "asyncio.",
    "concurrent.futures.",
)  # Modules whose frames come before a handler's own.


class Cause(Enum):
    """What an error means for its attempt."""

    HANDLER = "the handler failed, and may succeed later"
    PERMANENT = "the handler failed, and would fail again"
    UNFIT = "the code, or what is stored, does not fit the item; what it has done stays done"
    STORE = "the store refused; the handler has not failed"
    EVENT_LOOP = "another coroutine took the event loop down; the handler has not failed"
    LOST = "the lease had expired, or another worker has leased the item; the handler has not failed"
    GONE = "the item is gone, and so its completion was refused"


@dataclass(frozen=True, slots=True)
class ErrorText:
    """An error in one line (`text`), and with its traceback (`lines`).

    Frames name files as they are imported, such as `shop/receipts.py`: without the machine's folders. So one error has
    one text in all releases and on all machines.
    `safe_to_log`: a log may render the error again: that is fast, has few causes, and yields text that can be encoded.
    """

    text: str
    lines: str
    safe_to_log: bool


@dataclass(frozen=True, slots=True)
class Failure:
    """An error of an attempt and its cause. `error` is for logs and hooks; the texts: see `ErrorText`."""

    error: BaseException
    text: str
    lines: str
    safe_to_log: bool
    cause: Cause

    @property
    def counts(self) -> bool:
        """Whether the attempt counts as one that failed."""
        return self.cause in (Cause.HANDLER, Cause.PERMANENT, Cause.UNFIT)


def failure_of(error: BaseException, handler: Handler, item_id: bytes, clock: Clock) -> Failure:
    """Return the failure that an error of an attempt at an item is. Runs code of the error's class."""
    rendered = render_error(error, clock)
    return Failure(error, rendered.text, rendered.lines, rendered.safe_to_log, cause_of(error, handler, item_id))


def cause_of(error: BaseException, handler: Handler, item_id: bytes) -> Cause:
    """Return what an error means for its attempt. If its class cannot be tested, the handler failed."""
    try:
        return _cause_of(error, handler, item_id)
    except BaseException:  # noqa: BLE001 - a class may answer `isinstance` by any code of the user's
        return Cause.HANDLER


def _cause_of(error: BaseException, handler: Handler, item_id: bytes) -> Cause:
    if isinstance(error, LeaseLost | ItemGone) and error.fields.get("item") == item_id.hex():
        return Cause.LOST if isinstance(error, LeaseLost) else Cause.GONE
    if isinstance(error, EventLoopLost):
        return Cause.EVENT_LOOP
    if isinstance(error, StoreUnavailable) and handler.form in (Form.TRANSACTIONAL, Form.IN_STORE, Form.WORKFLOW):
        return Cause.STORE
    if isinstance(error, TenantMoved) and handler.form is Form.WORKFLOW:  # Its steps find it at its new home.
        return Cause.STORE
    if isinstance(error, UnfitCode | RunUnreadable):
        return Cause.UNFIT
    if isinstance(error, ResultNotKept) and handler.form is Form.WORKFLOW:
        return Cause.UNFIT
    return Cause.PERMANENT if is_permanent(handler, error) else Cause.HANDLER


def is_permanent(handler: Handler, error: BaseException) -> bool:
    """Say whether an error would occur again in every attempt."""
    return isinstance(error, (*handler.permanent, ResultNotKept, RunUnreadable, UnfitCode))


def render_error(error: BaseException, clock: Clock) -> ErrorText:
    """Return an error as text of bounded length.

    Rendering runs code of the error's class. If that code fails, the text is the name of the class.
    """
    began_us = clock.now_us()
    try:
        found = _errors_of(error)
        text, lines = _render_all(error) if len(found) <= ERRORS_MAX else _render_first(found[:ERRORS_MAX])
        soon = 0 <= clock.now_us() - began_us < SAFE_RENDER_US
        return ErrorText(
            shortened(text), shortened(lines), soon and len(found) <= ERRORS_MAX and _can_be_encoded(lines)
        )
    except BaseException as failure:  # noqa: BLE001 - an error may raise anything while it is rendered
        name = type.__getattribute__(type(error), "__qualname__")
        return ErrorText(f"{name}, which cannot be rendered", shortened(repr(type(failure))), safe_to_log=False)


def handlers_frames(error: BaseException) -> TracebackType | None:
    """Return the traceback of an error from the handler's own frame on; all of it if no such frame is in it."""
    return handlers_part(error.__traceback__) or error.__traceback__


def handlers_part(traceback: TracebackType | None) -> TracebackType | None:
    """Return a traceback from the handler's own frame on; None: no such frame is in it."""
    while traceback is not None and str(traceback.tb_frame.f_globals.get("__name__")).startswith(_AROUND_HANDLERS):
        traceback = traceback.tb_next
    return traceback


def _errors_of(error: BaseException) -> list[BaseException]:
    """Return an error, its causes and contexts, and the members of groups, nearest first: one more than is rendered."""
    found = {id(error): error}
    new = [error]
    while new and len(found) <= ERRORS_MAX:
        members = [each for one in new if isinstance(one, BaseExceptionGroup) for each in one.exceptions[:ERRORS_MAX]]
        near = [each for one in new for each in (one.__cause__, one.__context__) if each is not None] + members
        new = list({id(each): each for each in near if id(each) not in found}.values())
        found.update((id(each), each) for each in new)
    return list(found.values())[: ERRORS_MAX + 1]


def _render_all(error: BaseException) -> tuple[str, str]:
    """Render an error as Python does."""
    text = "".join(traceback.format_exception_only(error)).strip().removeprefix(f"{type(error).__module__}.")
    rendered = TracebackException(type(error), error, handlers_frames(error), limit=-FRAMES_MAX, compact=True)
    new = [rendered]
    while new:
        one = new.pop()
        _name_as_imported(one.stack)
        new += [each for each in (one.__cause__, one.__context__, *(one.exceptions or ())) if each is not None]
    return text, "".join(rendered.format())


def _render_first(errors: list[BaseException]) -> tuple[str, str]:
    """Render the first of many errors, oldest first. Python's own function would render all, whatever the limit."""
    first, lines = "", ["earlier errors are left out\n\n"]
    for error in reversed(errors):
        first = f"{type(error).__qualname__}: {error}"
        frames = traceback.extract_tb(handlers_frames(error), limit=-FRAMES_MAX)
        _name_as_imported(frames)
        lines += [*frames.format(), shortened(first), "\n"]
    return first, "".join(lines)


def _name_as_imported(frames: Iterable[FrameSummary]) -> None:
    """Let frames name their files from the nearest folder of `sys.path` on. What is no folder there is passed over."""
    roots = []
    for folder in sys.path:
        with suppress(OSError):  # A relative one, and the process's own folder was deleted.
            if isinstance(folder, str):
                roots.append(os.path.join(os.path.abspath(folder), ""))  # noqa: PTH100, PTH118 - as text, with its end
    roots.sort(key=len, reverse=True)
    for frame in frames:
        root = next((each for each in roots if frame.filename.startswith(each)), "")
        frame.filename = frame.filename.removeprefix(root)


def _can_be_encoded(text: str) -> bool:
    """Say whether a log can write a text: a lone surrogate, as in the name of a file, cannot be encoded."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
