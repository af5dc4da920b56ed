"""Fairlead beside the queues that people use: one run, one machine, the same jobs.

    python -m bench.peers                                     everything; writes docs/peers (about three hours)
    python -m bench.peers --quick                             every system and measure, small; prints tables (minutes)
    python -m bench.peers --systems dbos,fairlead-ray --measures flood
    python -m bench.peers --measures drain --output docs/peers   one measure anew; the others stay as they were

`make bench-peers` installs the requirements and runs this. A full run of everything writes `results.json`, `README.md`
and `peers.png` into docs/peers; any other run writes into the directory of --output, if any. The files are written
after each measure. Ctrl-C stops all processes and removes their data; the results of the current measure are lost.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.machine import describe, scratch
from bench.peers.measures import MEASURES
from bench.peers.page import bars_reached, tables
from bench.peers.record import Record, read
from bench.peers.results import Conditions, results
from bench.peers.run import Run, ending_everything
from bench.peers.systems import SYSTEMS
from bench.report import say

DOCS = Path("docs/peers")
INTERRUPTED = 130  # A shell's exit code for a program that Ctrl-C ended.


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the command line."""

    systems: Sequence[str]
    measures: Sequence[str]
    quick: bool
    output: Path | None


def options(arguments: Sequence[str] | None = None) -> Options:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the same shapes with smaller sizes, once each")
    parser.add_argument("--systems", type=_names(SYSTEMS), default=list(SYSTEMS), help=f"some of {', '.join(SYSTEMS)}")
    parser.add_argument("--measures", type=_names(MEASURES), default=list(MEASURES), help=f"of {', '.join(MEASURES)}")
    parser.add_argument("--output", type=Path, help="the directory to write results.json, README.md and peers.png into")
    parsed = parser.parse_args(arguments)
    everything = not parsed.quick and parsed.systems == list(SYSTEMS) and parsed.measures == list(MEASURES)
    return Options(parsed.systems, parsed.measures, parsed.quick, parsed.output or (DOCS if everything else None))


def _names(known: Any) -> Any:
    def parse(text: str) -> list[str]:
        names = text.split(",")
        if unknown := [name for name in names if name not in known]:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: there are {', '.join(known)}")
        return names

    return parse


def main() -> None:
    """Measure, print, and write. After an interruption, print the results until then."""
    opts = options()
    record = Record() if opts.output is None else read(opts.output)
    interrupted = False
    with ending_everything(), scratch() as directory:
        directory.chmod(0o711)
        conditions = Conditions(**describe(directory), size="quick" if opts.quick else "full")
        run = Run(opts.systems, opts.measures, directory, quick=opts.quick)
        try:
            for measure in run.run_rounds():
                record = record.with_measure(measure, conditions, run.finished)
                if opts.output is not None:
                    record.write(opts.output)
        except KeyboardInterrupt:
            interrupted = True
    found = results(run.finished)
    print("\n".join([*tables(found), *bars_reached(found)]))
    for line in [*(f"{system}: {reason}" for system, reason in found.missing.items()), *found.failed]:
        print(line)
    if interrupted:
        say("interrupted: everything is stopped and removed; of the measure under way nothing is written")
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
