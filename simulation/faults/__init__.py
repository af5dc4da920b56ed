"""Faults: what goes wrong in a run, each a small class with three phases: set up, run, check.

    fault         the phases, and how something happens now and then
    commits       a shard's commits are refused, of unknown result, late or too old; a shard is away
    actors        actors and machines are killed, paused, restarted; the coordinator is gone
    clocks        clocks jump, or are an hour off for a second
    calls         calls between actors are lost, late, or carried out twice
    handlers      handlers fail, hang, and end their process
    stray_entries index entries that lead nowhere
    policies      an operator pauses tenants, kinds and shards, and lets them go on

`table` lists them all. A run draws which of them exist (`plan`); each has a generator of its own, so leaving one out
changes nothing of what the others draw.
"""
