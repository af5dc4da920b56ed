"""Faults: disturbances of a run, each a small class with three phases: set up, run, check.

    names         all faults by name, and whether each explains that a lease expires
    fault         the phases, and events at random times
    commits       a shard's commits are refused, of unknown result, late or too old; a shard is unavailable
    actors        actors and machines are killed, paused, restarted; the coordinator is lost
    clocks        clocks jump, or are an hour off for a second
    calls         calls between actors are lost, late, or carried out twice
    handlers      handlers fail, hang, and end their process
    loops         a loop of an actor dies or stalls
    watches       watches are lost or refused
    stray_entries index entries without records
    policies      an operator pauses, limits and weighs tenants, kinds and shards for a while
    cleanup       checks that actors, sessions and in-flight items have recovered
    table         the class of each fault

A run draws its faults (`plan`). Each has its own random generator, so the removal of one does not change the draws of
the others.
"""
