"""The command `fairlead`.

Read in this order:
    failures    how an error becomes a sentence, a remedy, and an exit code
    output      tables for people, JSON for programs
    target      which application and stores a command works on
    arguments   durations, payloads, ids: what is typed, checked
    fleet       run, submit
    items       enqueue, peek, cancel
    graves      buried, revive, discard
    steering    pause, resume, limit, weigh
    log         log
    why         why
    overview    status, config
    dashboard   dashboard
    top         top
    upkeep      check, backup, restore
    quarantine  quarantine
    demo        demo
    simulate    simulate
May import: everything of fairlead. Imported by: nothing.
"""

import click

from fairlead.cli import (
    dashboard,
    demo,
    fleet,
    graves,
    items,
    log,
    overview,
    quarantine,
    simulate,
    steering,
    top,
    upkeep,
    why,
)
from fairlead.cli.failures import Commands

EPILOG = """\b
Exit codes:
  0  done
  1  done, and something is wrong: `check` found faults, `demo` a difference, `simulate` a broken promise,
     `run` has lost its fleet, `result` has none: the item has not ended, or failed
  2  refused: a wrong argument or configuration; nothing was changed
  3  the store cannot be used: missing, unreachable, read-only, full, or of a newer format
  4  what the command names is not there

\b
Every command takes --json (one object on standard output; errors as one object on standard error) and finds its
stores by --store URL, by --app MODULE:ATTRIBUTE, or by fairlead.toml and FAIRLEAD_... in the environment.
"""


@click.group(cls=Commands, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="fairlead", prog_name="fairlead")
def main() -> None:
    """A transactional queue per tenant, inside the database it serves, run by Ray actors."""


for command in (
    demo.demo,
    fleet.run,
    items.enqueue,
    items.peek,
    items.cancel,
    items.result,
    why.why,
    overview.status,
    dashboard.dashboard,
    top.top,
    graves.buried,
    graves.revive,
    graves.discard,
    steering.pause,
    steering.resume,
    steering.limit,
    steering.weigh,
    log.log,
    fleet.submit,
    overview.config,
    upkeep.check,
    quarantine.quarantine,
    upkeep.backup,
    upkeep.restore,
    simulate.simulate,
):
    main.add_command(command)
