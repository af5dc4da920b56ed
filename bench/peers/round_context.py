"""The context of one round of one system. Every process of the round gets it through one environment variable.

So a worker with its own command, such as `celery worker`, has the context as well as a process of this package.
"""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

VARIABLE = "BENCH_PEERS_PLACE"


@dataclass(frozen=True, slots=True)
class RoundContext:
    """The context of one round.

    Attributes:
      system: its name in `bench.peers.systems`.
      directory: the round's own directory, empty at first, for the server's data, stores, records and logs.
      port: a free port on 127.0.0.1, for the server.
      slots: jobs at once, over all workers; None: the best number for the system.
      longest_job_s: the maximal duration of a job. A system that cannot distinguish a long job from a dead worker must
        wait for this time before it runs a job again.
    """

    system: str = ""
    directory: Path = Path()
    port: int = 0
    slots: int | None = None
    longest_job_s: int = 60

    @property
    def notes(self) -> Path:
        """The directory in which workers record the jobs that they start."""
        return self.directory / "notes"

    def environment(self) -> dict[str, str]:
        """Return the environment of this round's processes: the caller's, with this context."""
        return {**os.environ, VARIABLE: json.dumps({**asdict(self), "directory": str(self.directory)})}


def _from_environment() -> RoundContext:
    """Return the context of this process; an empty one outside of a round, where it is not used."""
    stored = json.loads(os.environ.get(VARIABLE, "{}"))
    return RoundContext(**stored | {"directory": Path(stored.get("directory", ""))})


CONTEXT = _from_environment()
