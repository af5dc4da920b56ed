"""The command `fairlead`.

Read in this order:
    errors         errors as sentences with remedies and exit codes
    output         tables for people, JSON for programs
    store_options  the options that name the application and its stores
    arguments      types of arguments: durations, payloads, ids, tenants
    fleet          run, submit
    items          enqueue, peek, find, cancel, result
    steps          steps, signal
    replay         replay
    dead_letters   dead-letters list, retry, discard
    control        pause, resume, limit, set-weight
    locks          locks
    snapshots      snapshots list, take, diff, restore, drop
    moves          move, moves, rebalance
    postgres       postgres init, upgrade, check, grant
    records        records list, check, scrub, violations, add-index, drop-index
    log            log
    why            why
    overview       status, config
    external_stores  what status and check say of external stores
    dashboard      dashboard
    top            top
    maintenance    check, backup, restore
    quarantine     quarantine
    demo           demo
    simulate       simulate
May import: everything of fairlead. Imported by: nothing.
"""

import click

from fairlead.cli import (
    control,
    dashboard,
    dead_letters,
    demo,
    fleet,
    items,
    locks,
    log,
    maintenance,
    moves,
    overview,
    postgres,
    quarantine,
    records,
    replay,
    simulate,
    snapshots,
    steps,
    top,
    why,
)
from fairlead.cli.errors import Commands

EPILOG = """\b
Exit codes:
  0  done
  1  done, and something is wrong: `check` found faults, `demo` a difference, `simulate` a broken promise, `replay` code
     that differs;
     `run` has lost its fleet; the item of `result` has not ended, or failed; the tenant of `move --wait` has not moved;
     `records check` found faults; the index of `records add-index --wait` was not built
  2  refused: a wrong argument or configuration; nothing was changed
  3  the store cannot be used: missing, unreachable, read-only, full, or of a newer format
  4  the item or record that the command names does not exist, or the move that `move --cancel` names
  130  interrupted by Ctrl-C before it was done; a first Ctrl-C of `run` drains, and ends with 0

\b
Every command takes --json (one object on standard output; errors as one object on standard error) and finds its
stores by --store URL, by --app MODULE:ATTRIBUTE (or FAIRLEAD_APP), or by fairlead.toml and FAIRLEAD_... in the
environment.
"""


@click.group(cls=Commands, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="fairlead", prog_name="fairlead")
def main() -> None:
    """A transactional queue per tenant, inside the database it serves, run by Ray actors."""


SECTIONS: dict[str, tuple[tuple[click.Command, str], ...]] = {
    "Start": (
        (demo.demo, "index the standard library with a fleet, and check the result"),
        (fleet.run, "run the work of an application"),
        (simulate.simulate, "run the fleet, or your handlers, in simulated worlds with faults"),
        (overview.config, "show every setting in force, and its source"),
    ),
    "Items": (
        (items.enqueue, "enqueue one item"),
        (items.peek, "show the first items of a queue"),
        (items.find, "find items of all tenants by a key, and cancel them"),
        (items.cancel, "delete an item from its queue"),
        (items.result, "show the result of an item"),
        (steps.steps, "show the steps of a workflow"),
        (steps.signal, "send a signal to a workflow"),
        (replay.replay, "replay the workflows of a kind by new code, and show those that differ"),
        (why.why, "say why an item is not running"),
    ),
    "Watch": (
        (overview.status, "show depths, ages and consumers of each shard"),
        (dashboard.dashboard, "serve web pages: waiting, running and failed items"),
        (top.top, "show the same live in the terminal"),
        (locks.locks, "list who holds locks; abort what a lost shard has left locked"),
        (log.log, "show the actions of operators"),
    ),
    "Data of tenants": ((snapshots.snapshots, "take, list, compare, restore or drop snapshots of a tenant"),),
    "Failed items": ((dead_letters.dead_letters, "list, retry or discard items that failed for good"),),
    "Control a running fleet": (
        (control.pause, "pause a tenant, a kind, a shard"),
        (control.resume, "resume a paused tenant, kind or shard"),
        (control.limit, "limit how many items of a tenant or a kind run and start"),
        (control.set_weight, "give a tenant a larger or smaller share"),
        (fleet.submit, "give a running fleet a handler"),
    ),
    "Stores": (
        (moves.move, "move a tenant to another shard while it is used"),
        (moves.moves, "list the moves of tenants"),
        (moves.rebalance, "move tenants to shards that were added"),
        (records.records, "list types of records; build, drop, check and scrub their indexes"),
        (maintenance.check, "verify a store, and repair it"),
        (quarantine.quarantine, "show damaged records that were set aside"),
        (maintenance.backup, "write a store to a file"),
        (maintenance.restore, "restore a backup into an empty store"),
        (postgres.postgres, "prepare a PostgreSQL database for queues beside its data"),
    ),
}
for title, commands in SECTIONS.items():
    main.sections[title] = [str(command.name) for command, _ in commands]
    for command, short_help in commands:
        command.short_help = short_help
        main.add_command(command)
