"""Errors of workflows that a user can meet, besides those of a replay (`replay`) and recorded ones."""

from typing import ClassVar

from fairlead.actors.handlers import PermanentError, UnfitCode
from fairlead.zones.errors import QueueError


class EndedElsewhere(UnfitCode):
    """The home of a run has its item under a lease, and another shard knows that the run has ended.

    That happens if one shard of several was restored from a backup: it takes back its own steps, and not those of the
    others. Do: compare what the run has done on both shards; then cancel the dead letter with `--force`, and enqueue
    anew what is still to be done.
    """

    message = "the run has ended, as another shard knows: was this shard restored from a backup?"


class EffectUnknown(PermanentError):
    """An effect with `once=True` was begun, and its answer is lost: the worker died, or the store refused it.

    Do: find out by the idempotency key whether it happened, in an effect of its own; or let the run be undone.

    Attributes:
      step: the name of the effect.
      key: its idempotency key.
    """

    def __init__(self, step: str, key: str) -> None:
        super().__init__(step, key)
        self.step = step
        self.key = key

    def __str__(self) -> str:
        return f"it is unknown whether the effect {self.step!r} happened; its idempotency key is {self.key}"


class CallRefused(UnfitCode):
    """A call names its child with the `item_id` of an item that is there already: that item answers no call.

    Do: let the call draw the id, or choose a name that no other item has.
    """

    message = "an item of the child's name is there already"


class CallTimeout(PermanentError):
    """A child has not ended within the `timeout` of its call. It goes on.

    Do: catch it, and go another way; otherwise the run is undone, which cancels the child.
    """

    def __init__(self, call: str, timeout_s: float) -> None:
        super().__init__(call, timeout_s)
        self.call = call
        self.timeout_s = timeout_s

    def __str__(self) -> str:
        return f"the child of {self.call!r} has not ended within {self.timeout_s:g} s"


class SignalTimeout(PermanentError):
    """A signal has not come within the `timeout` of `wait_for`, and the call names no `default`.

    Do: catch it, and go another way, or pass `default=`; otherwise the run is undone.

    Attributes:
      signal: its name.
      timeout_s: seconds.
    """

    def __init__(self, signal: str, timeout_s: float) -> None:
        super().__init__(signal, timeout_s)
        self.signal = signal
        self.timeout_s = timeout_s

    def __str__(self) -> str:
        return f"the signal {self.signal!r} has not come within {self.timeout_s:g} s"


class StepInStep(UnfitCode):
    """The body of a step, or a call of an effect, called a method of `wf`.

    Do: call it after the step has returned, with what the step returned.
    """

    message = "a step was begun inside another step: call wf after that step has returned"


class OtherThread(UnfitCode):
    """A workflow that is a plain function called `wf` from a thread that it has started.

    The order of such calls differs from run to run, and a body in another thread would escape `StepInStep`.

    Do: call `wf` where the function runs; an effect may use threads inside. For steps side by side, write the workflow
    as `async def`, or use `wf.gather`.
    """

    message = "wf was called in another thread: call it in the function's own, or write the workflow as async def"


class CallNotAwaited(UnfitCode):
    """An async workflow has called a method of `wf` without `await`: the calls, a field, are not done.

    The item is not completed, and becomes a dead letter; what else it has done stays done.

    Do: await each call, alone, in `asyncio.gather` or in a task. If the run has done later steps, raise the `version`
    of the workflow; then retry the dead letter.
    """

    message = "a call of wf was not awaited, so it is not done: write await before it"


class TooManySteps(UnfitCode):
    """A run has recorded more steps since its last checkpoint than a replay should read.

    Do: call `wf.checkpoint(state)` now and then in a loop, and begin the loop from `wf.state`.
    """

    message = "the run has too many steps since its last checkpoint: call wf.checkpoint in its loop, and retry it"


class CheckpointLoop(UnfitCode):
    """A test replays a workflow that has made 10,000 checkpoints without a wait or an end.

    Each replay begins with the state of the last checkpoint. So a checkpoint that every replay makes, such as
    `wf.checkpoint(0)` at the start of the function, sets back what later ones have reached.

    Do: begin from `wf.state`: `row = wf.state or 0`. If the loop is right and just long, test it with
    `drain(app, replays=False)`.
    """

    message = "checkpoint follows checkpoint without end: begin from wf.state, or drain with replays=False"


class LockOrder(UnfitCode):
    """A lock was asked for that sorts before one that the caller holds, or that the caller holds already.

    Locks are taken in one order, by tenant and key: otherwise two callers could wait for each other for ever. The item
    of a workflow becomes a dead letter, and keeps the locks that it holds. Outside of workflows, what the same thread
    or the same task of an event loop holds counts.

    Do: take all locks that are needed together by one call, which sorts them; or release the one that is held before.
    Then retry the dead letter of a workflow with the changed code, or cancel it.
    """

    message = "the caller cannot take the lock"
    HELD: ClassVar[str] = "the caller holds it already"
    OUT_OF_ORDER: ClassVar[str] = "it is asked for out of order: take all locks by one call, which sorts them"


class CheckpointUnderLock(UnfitCode):
    """A workflow called `wf.checkpoint` while it held locks. The next attempt would begin without knowing of them.

    Do: leave the `with` blocks of its locks before, and release those that an error has left behind.
    """

    message = "a checkpoint is called while the workflow holds locks"


class TooManyLocks(UnfitCode):
    """A workflow holds more locks than the end of its run can release in one transaction.

    Do: release locks that are no longer needed; or lock what they have in common, by one shorter key.
    """

    message = "the workflow holds too many locks at once"


class PayloadMismatch(UnfitCode):
    """The payload of the item does not fit the parameters of the workflow's function.

    Do: enqueue a dict with a value for each parameter, `{"order": 7}` for `def checkout(wf, order)`. Once the function
    takes what the payload has, retry the dead letter.
    """

    message = "the payload does not fit the workflow's parameters"


class AfterFinish(UnfitCode):
    """A method of `wf` was called after `wf.finish`, which has completed the item: the call, a field, is not done.

    Do: do it before, or in the body of `wf.finish`, and end the workflow with `return wf.finish(...)`.
    """

    message = "a call of wf after wf.finish is not done: the item is completed already"


class ReadOnly(UnfitCode):
    """The body of `wf.read` has written.

    Do: write in a `wf.step`.
    """

    message = "the body of wf.read must not write"


class BranchNotEnded(QueueError):
    """A branch of an async workflow ran on for five seconds after its cancellation, when the function had ended.

    The attempt has failed, unless it was suspended or completed before; the branch still runs in its worker. In a test,
    `drain` raises this after one more second, also for a task that an async handler has left.

    Do: let `asyncio.CancelledError` pass: raise it again where you catch it, and keep cleanups short.
    """

    message = "a branch ignores its cancellation: raise asyncio.CancelledError again where it is caught"


class StepTooLong(QueueError):
    """The body of a step took longer than the five seconds of a transaction. The attempt has failed.

    Do: move what takes long into `wf.effect`, whose answer is recorded, and write in a short step.
    """

    message = "a step ran past 5 s: move the work into wf.effect"
