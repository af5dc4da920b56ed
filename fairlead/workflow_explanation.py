"""Why a workflow does not go on: what its step log adds to the explanation of its item. Pure decisions."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from fairlead.causes import Cause, Explained, span_text
from fairlead.workflows.child_jobs import RESULT_OF
from fairlead.workflows.recorded_errors import step_in
from fairlead.workflows.replay import shown
from fairlead.workflows.step_identity import step_of_call
from fairlead.workflows.workflow_kind import NEWER_CODE, NEWER_FAIRLEAD
from fairlead.zones.durations import DELAY_S_MAX
from fairlead.zones.records import DeadLetterRecord, ItemRecord
from fairlead.zones.reporting.diagnosis import Diagnosis
from fairlead.zones.workflow.locks import LOCK_SIGNAL
from fairlead.zones.workflow.run_records import StepEntry, StepKind, StepState
from fairlead.zones.workflow.step_log import StepName, StoredRun
from fairlead.zones.workflow.suspension import AwaitedChild, AwaitedSignal, awaited_of
from fairlead.zones.workflow.undone_end import CANCELLED

NAMES_MAX = 5  # Of signals or children in a sentence.
NO_TIMEOUT_US = DELAY_S_MAX * 1_000_000 // 2  # A wait that ends later than this has no timeout.

_AT_WORK = (Cause.RUNNING, Cause.LEASE_EXPIRED, Cause.BEHIND, Cause.NEXT, Cause.POINTER_LEASED)


class RecordedRun(NamedTuple):
    """What is stored of a run at home.

    `away`: which tenant's shard cannot be read, and why; empty: none is known. `whole`: no more steps are recorded.
    `lock`: the lock that it waits for, in words, and its holder; empty: none is known.
    """

    stored: StoredRun
    away: str = ""
    whole: bool = True
    lock: str = ""


def lock_signals(item: ItemRecord) -> list[str]:
    """Return the names of the signals by which a workflow waits for locks."""
    return [name for name in _all_signals(item) if name.startswith(LOCK_SIGNAL)]


def signals_of(item: ItemRecord) -> list[str]:
    """Return the names of the other signals that a workflow waits for."""
    return [name for name in _all_signals(item) if not name.startswith(LOCK_SIGNAL)]


def _all_signals(item: ItemRecord) -> list[str]:
    return [each.name for each in map(awaited_of, item.waits_for) if isinstance(each, AwaitedSignal)]


def may_be_held_up(diagnosis: Diagnosis) -> bool:
    """Say whether a shard that is away may be why a workflow does not go on."""
    item = diagnosis.item
    return item is not None and not item.lease_id and not is_suspended(item) and item.vesting_us > diagnosis.now_us


def explain_run(found: Explained, item: ItemRecord, recorded: RecordedRun, now_us: int) -> Explained:
    """Return the explanation of a workflow that is in its queue. `found`: of any item in its place."""
    cause, sentence, details = found
    head, entries = recorded.stored.head, recorded.stored.entries
    if head is not None:
        details |= {"steps": sum(entry.state is StepState.DONE for entry in entries.values()), "version": head.version}
    if cause in (Cause.DELAYED, Cause.RETRYING):
        if is_suspended(item):
            cause, sentence = _waiting(item, recorded, details, now_us)
        else:
            cause, sentence = _held_back(cause, sentence, item, recorded, details, now_us)
    reason = None if head is None else head.undo_reason
    if reason is None and not item.cancelling:
        return cause, sentence, details
    why = "its cancellation was requested" if reason in (None, CANCELLED) else _one_line(reason or "")
    undone = sum(entry.kind is StepKind.UNDO for entry in entries.values())
    details |= {"undo_reason": reason or CANCELLED, "undone": undone}
    if cause in _AT_WORK:
        cause = Cause.BEING_CANCELLED if reason in (None, CANCELLED) else Cause.BEING_UNDONE
    here = " on its own shard" if recorded.stored.participants else ""
    return cause, f"its steps are being undone, {undone} so far{here}: {why}; {sentence}", details


def explain_dead_run(found: Explained, dead_letter: DeadLetterRecord, recorded: RecordedRun) -> Explained:
    """Return the explanation of a workflow that is a dead letter. `found`: of any dead letter."""
    cause, sentence, details = found
    head, entries = recorded.stored.head, recorded.stored.entries
    if head is None:
        return found
    details |= {"steps": sum(entry.state is StepState.DONE for entry in entries.values()), "version": head.version}
    first, *rest = dead_letter.error.splitlines() or [""]
    if first.startswith("StepsDiffer") and rest:
        details["difference"] = rest
    if head.undo_reason is None:
        kept = _kept(recorded)
        return cause, sentence.replace("; ", f"; {kept}; ", 1) if "; " in sentence else f"{sentence}; {kept}", details
    details["undo_reason"] = head.undo_reason
    return cause, f"its undo failed, and a retry goes on undoing it: {_one_line(head.undo_reason)}; {sentence}", details


def _kept(recorded: RecordedRun) -> str:
    """Return what stays done of a run that failed, and which step was the last one, in words."""
    entries = recorded.stored.entries
    done = {entry.ordinal: step for step, entry in entries.items() if entry.state is StepState.DONE}
    elsewhere = bool(recorded.stored.participants)  # Their entries are on their shards, and are not read here.
    if not done:
        return "what it has done on other shards stays done" if elsewhere else "it has done no step"
    too = ", and so does what it has done on other shards" if elsewhere else ""
    if not recorded.whole:  # Those that were read are not the last ones.
        return f"what its more than {len(done):,} recorded steps have done stays done{too}"
    last = shown(done[max(done)])
    if len(done) == 1:
        return f"what its recorded step {last} has done stays done{too}"
    return f"what its {len(done):,} recorded steps, up to {last}, have done stays done{too}"


def has_timeout(until_us: int, now_us: int) -> bool:
    """Return whether a wait until then ends by a timeout: one without has a time that is years away."""
    return until_us - now_us <= NO_TIMEOUT_US


def is_suspended(item: ItemRecord) -> bool:
    """Say whether the last attempt ended by waiting, and no other has begun."""
    return bool(item.suspended_at) and item.suspended_at == item.lease_number and not item.lease_id


def _waiting(item: ItemRecord, recorded: RecordedRun, details: dict[str, object], now_us: int) -> tuple[Cause, str]:
    stored = recorded.stored
    awaited = [each for name in item.waits_for if (each := awaited_of(name)) is not None]
    of_locks, signals = lock_signals(item), signals_of(item)
    children = [
        StepName(step_of_call(stored.segment, each.name), each.occurrence)
        for each in awaited
        if isinstance(each, AwaitedChild)
    ]
    waits = {step: entry for step, entry in stored.entries.items() if entry.state is StepState.WAITING}
    began = [entry.at_us - entry.took_us for entry in waits.values() if entry.kind is StepKind.WAIT]
    if began:
        details["since_us"] = min(began)
    what: list[str] = []
    if signals:
        details["signals"] = signals
        what.append(f"for the signal{'s' if len(signals) > 1 else ''} {_listed(signals)}")
    if children:
        ended = _ended_beside(children, stored.entries)
        names = [shown(each) for each in children]
        details |= {"children": names, "children_ended": ended}
        what.append(f"for {len(children):,} of {len(children) + ended:,} children: {_listed(names)}")
    if of_locks:
        what.append(f"for {recorded.lock or 'a lock'}")
    next_try = _next_try(waits, item, details, now_us)
    if not what:
        left = span_text(item.vesting_us - now_us)
        return (Cause.RETRYING, next_try) if next_try else (Cause.SLEEPING, f"it sleeps for another {left}")
    cause = Cause.WAITS_FOR_SIGNAL if signals else Cause.WAITS_FOR_CHILDREN if children else Cause.WAITS_FOR_LOCK
    sentence = f"it waits {' and '.join(what)}"
    if began:
        sentence += f", for {span_text(now_us - min(began))} so far"
    if next_try:
        sentence += f"; {next_try}"
    elif has_timeout(item.vesting_us, now_us):
        sentence += (
            f"; without {'it' if len(what) == 1 else 'them'}, it goes on in {span_text(item.vesting_us - now_us)}"
        )
    return cause, sentence


def _next_try(waits: Mapping[StepName, StepEntry], item: ItemRecord, details: dict[str, object], now_us: int) -> str:
    """Return how often a step failed that is to be tried again, and when; empty: none is."""
    for step, entry in waits.items():
        if entry.kind is not StepKind.WAIT and entry.tries:
            details |= {"step": shown(step), "tries": entry.tries}
            times = "once" if entry.tries == 1 else f"{entry.tries:,} times"
            left = span_text((entry.until_us or item.vesting_us) - now_us)
            error = entry.error
            what = "" if error is None else f": {error.type_name.rpartition('.')[2]}: {_one_line(error.message)}"
            return f"its step {shown(step)} failed {times}{what}; the next try comes in {left}"
    return ""


def _held_back(
    cause: Cause, sentence: str, item: ItemRecord, recorded: RecordedRun, details: dict[str, object], now_us: int
) -> tuple[Cause, str]:
    """Return why a workflow that does not wait runs only later."""
    left = span_text(item.vesting_us - now_us)
    head = recorded.stored.head
    if NEWER_CODE in item.waits_for and head is not None:
        return Cause.NEEDS_NEWER_CODE, (
            f"version {head.version} of its code began it, and older code gave it back; deploy that version or a higher"
            f" one; it is tried again in {left}"
        )
    if NEWER_FAIRLEAD in item.waits_for:
        return Cause.NEEDS_NEWER_CODE, (
            f"a newer version of Fairlead wrote some of its steps, and this one gave it back; upgrade the fleet; it is"
            f" tried again in {left}"
        )
    if recorded.away:
        return Cause.PARTICIPANT_AWAY, f"{recorded.away}; it is tried again in {left}"
    if item.error_count:
        error, step = step_in(item.last_error)
        if step is not None:
            details["step"] = step
            times = "once" if item.error_count == 1 else f"{item.error_count:,} times"
            sentence = f"its step {step} failed {times}: {_one_line(error)}; the next try comes in {left}"
        return cause, sentence
    if item.last_error and item.lease_number:
        return Cause.RETRYING, f"the store refused: {_one_line(item.last_error)}; it is tried again in {left}"
    return cause, sentence


def _ended_beside(children: list[StepName], entries: Mapping[StepName, StepEntry]) -> int:
    """Return how many children have ended that were called together with some that have not."""
    results = {
        StepName(step.name.removeprefix(RESULT_OF), step.occurrence): entry
        for step, entry in entries.items()
        if step.name.startswith(RESULT_OF) and entry.kind is StepKind.WAIT and entry.state is not StepState.WAITING
    }
    calls = {entries[step].ordinal: step in results for step in (*children, *results) if step in entries}
    pending = [ordinal for ordinal, ended in calls.items() if not ended]
    return 0 if not pending else sum(calls[ordinal] for ordinal in _run_around(pending[0], calls))


def _run_around(ordinal: int, calls: Mapping[int, bool]) -> Iterator[int]:
    """Yield the ordinals without a gap around one: calls of one `gather` are enqueued one after the other."""
    first = ordinal
    while first - 1 in calls:
        first -= 1
    while first in calls:
        yield first
        first += 1


def _listed(names: list[str]) -> str:
    more = len(names) - NAMES_MAX
    return ", ".join(names[:NAMES_MAX]) + (f" and {more:,} more" if more > 0 else "")


def _one_line(text: str) -> str:
    return text.partition("\n")[0]
