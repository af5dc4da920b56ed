"""Workflows: functions whose steps happen exactly once (Olive section 3: intents; their collector is the queue).

A workflow is an item. A worker runs its function from the beginning in each attempt. A step that is recorded in the
step log is not done again: its recorded answer is returned. So an attempt comes to where the last one stopped, and does
the next step. A workflow that waits is returned to its queue, and holds no slot.

Data flow: `fairlead -> workflows -> actors -> zones`. What is stored: `fairlead.zones.workflow`.

An item's way:
    a worker starts it                                      actors.worker, actors.execution.runner
    the log is read, and older attempts are fenced off      workflow_kind, run_log, entering
    the function runs; each call of `wf` is a step          context, steps, driver, execution
    the step is recorded: its answer is returned            replay, recorded_errors
    it is new: it is done, and recorded with its effects    step_commits, run_log
    it cannot go on now: the item returns to its queue      waits, run_log
    it cannot go on at all: its steps are undone            attempt, undo
    the function returns: the worker completes the item     actors.execution.completer

Read in this order:
    argument_checks     what a call may be given
    step_identity       names, digests and ids of steps
    replay              which step a call is, and whether it was done: pure decisions
    recorded_errors     errors of steps, as they are recorded and raised
    interrupts          what ends an attempt inside a call
    requests            what a call asks for while it is carried out
    step_call           a call that is a step, and the entries that it may get
    step_try            one try at a step, as telemetry sees it
    run_log             the log in memory, and every commit at home
    branch_moment       the time and the random numbers of a branch
    execution           what all calls have in common: which step it is, whether it may be done now, tries
    step_commits        how a step commits, at home or elsewhere
    steps_in_stores     how a step commits whose effects are in an external store
    entering            how older attempts are fenced off when an attempt begins
    steps, effects, waits, child_jobs    the calls
    held_locks, locks   blocks that hold locks, and their order
    helping             what whoever meets a lock does for its holder
    lock_acquisition, lock_keeper    locks that a process takes outside of workflows, and how it keeps them
    undoables, undo     what undoes the steps, and when
    callers_frames      where the function stood, in the traceback of an error
    attempt             what is done around the function, and what becomes of the item
    driver, asynchronous                 how a plain and an async workflow carry that out
    awaited_calls       calls of an async workflow that nobody awaits
    own_event_loop      an event loop for one attempt, in a test or a read-only replay
    context, async_context               `wf`
    workflow_kind       the kind of an application's workflow
    read_only_replay    a replay of a recorded run that does nothing: whether code fits it
    system_kinds        kinds that Fairlead enqueues for workflows: cleanup, reports, signals
"""
