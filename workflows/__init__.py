"""Workflows: functions whose steps happen exactly once (Olive section 3: intents; their collector is the queue).

A workflow is an item. A worker runs its function from the beginning in each attempt. A step that is recorded in the
step log is not done again: its recorded answer is returned. So an attempt comes to where the last one stopped, and does
the next step. A workflow that waits is returned to its queue, and holds no slot.

Data flow: `fairlead -> workflows -> actors -> zones`. What is stored: `fairlead.zones.workflow`.

An item's way:
    a worker starts it                                      actors.worker, actors.execution.runner
    the log is read, and older attempts are fenced off      workflow_kind, run_log, execution
    the function runs; each call of `wf` is a step          context, driver, execution
    the step is recorded: its answer is returned            replay, recorded_errors
    it is new: it is done, and recorded with its effects    execution, run_log
    it cannot go on now: the item returns to its queue      run_log
    it cannot go on at all: its steps are undone            workflow_kind, execution
    the function returns: the worker completes the item     actors.execution.completer

Read in this order:
    step_identity       names, digests and ids of steps
    replay              which step a call is, and whether it was done: pure decisions
    recorded_errors     errors of steps, as they are recorded and raised
    interrupts          what ends an attempt inside a call
    requests            what a call asks for while it is carried out
    run_log             the log in memory, and every commit at home
    execution           the calls
    driver              how a synchronous workflow carries them out
    context             `wf`
    workflow_kind       one attempt, and what becomes of the item
"""
