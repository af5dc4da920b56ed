"""Where one turn of one system happens. Every process of the turn is told it through one environment variable.

So a worker that is started by its own command, such as `celery worker`, knows it as well as a process of ours.
"""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

VARIABLE = "BENCH_PEERS_PLACE"


@dataclass(frozen=True, slots=True)
class RoundContext:
    """One turn's place.

    Attributes:
      system: by its name in `bench.peers.systems`.
      directory: its own, empty at first: the server's data, stores, notes and logs.
      port: a free one on 127.0.0.1, for its server.
      slots: jobs at once, over all workers; None: as many as suit the system best.
      longest_job_s: how long a job may take at most. A system that cannot tell a long job from a dead worker must wait
        for so long before it runs a job again.
    """

    system: str = ""
    directory: Path = Path()
    port: int = 0
    slots: int | None = None
    longest_job_s: int = 60

    @property
    def notes(self) -> Path:
        """The directory in which workers note what they start."""
        return self.directory / "notes"

    def environment(self) -> dict[str, str]:
        """Return the environment of this turn's processes: the caller's, and this place."""
        return {**os.environ, VARIABLE: json.dumps({**asdict(self), "directory": str(self.directory)})}


def _from_environment() -> RoundContext:
    """Return the place of this process; an empty one outside of a turn, where nobody uses it."""
    told = json.loads(os.environ.get(VARIABLE, "{}"))
    return RoundContext(**told | {"directory": Path(told.get("directory", ""))})


CONTEXT = _from_environment()
