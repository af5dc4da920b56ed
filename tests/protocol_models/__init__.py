"""Protocols as explicit-state models: every order of their transactions is explored, without guards too.

Read in this order:
    exploration       breadth-first search for a state, or a transition, that violates an invariant
    steps             a workflow's steps on another shard: step log, fence, cleanup, tombstones, FLOOR
    signals           a workflow that suspends until a signal arrives
    sessions          claims that end with their worker's session
    spanning          transactions across shards: locks, the decision, and whoever goes on for a dead coordinator
    move              a tenant that moves to another shard while it is used, and comes back
    online_index      an index that is built and dropped beside writers
    test_exploration  the search itself
    test_steps, test_signals, test_sessions, test_spanning, test_move

A model has guards: what a transaction reads with conflict, compares, or writes together. With all guards no scene
violates an invariant. Without a guard some scene does, so the guard is needed. `test_sessions` and `test_move`
name guards that are redundant: no scene needs one of them alone. A change of a protocol begins here.
The models share no code with the product: they check the design, not its implementation.
"""
