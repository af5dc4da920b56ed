"""Workflows: functions whose steps happen exactly once (Olive section 3: intents; their collector is the queue).

A workflow is an item. A worker runs its function from the beginning in each attempt. A step that is recorded in the
step log is not done again: its recorded answer is returned. So an attempt comes to where the last one stopped, and does
the next step. A workflow that waits is returned to its queue, and holds no slot.

Data flow: `fairlead -> workflows -> actors -> zones`. What is stored: `fairlead.zones.workflow`.

Read in this order:
    replay              which step a call is, and whether it was done: pure decisions
    recorded_errors     errors of steps, as they are recorded and raised
"""
