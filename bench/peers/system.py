"""What a measure asks of every system: the one interface behind which Celery, DBOS and Fairlead look alike."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from importlib.metadata import version
from typing import ClassVar, Protocol

from bench.peers import processes
from bench.peers.job import Job
from bench.peers.round_context import CONTEXT
from bench.peers.servers import Server

WORKERS = 2  # Of every system: one can be killed while another one lives.


class Producer(Protocol):
    """Sends jobs from one process, over connections that stay open."""

    def send(self, job: Job) -> None:
        """Return once the system has acknowledged one job."""
        ...

    def send_many(self, jobs: Sequence[Job]) -> None:
        """Return once the system has acknowledged all of them: in one call where it has one, else one by one."""
        ...


class System(ABC):
    """One queue in its best documented configuration, in one turn. Its module's docstring cites what that rests on.

    Attributes:
      title: as it stands in the table.
      settings: what differs from its defaults, in its own words.
      packages: the distributions whose versions belong to a figure.
      has_bulk: whether its interface can enqueue many jobs in one call.
      best_slots: jobs at once in one worker, where the measure does not say how many.
      drain_factor: how many times as many jobs it drains as others, so that this takes it seconds too.
      worker_count: commands that run workers.
    """

    title: ClassVar[str]
    settings: ClassVar[str]
    packages: ClassVar[tuple[str, ...]]
    has_bulk: ClassVar[bool] = True
    best_slots: ClassVar[int]
    drain_factor: ClassVar[int] = 1
    worker_count: ClassVar[int] = WORKERS

    server: Server | None

    @property
    def durable(self) -> bool:
        """Whether an acknowledged job survives a power cut."""
        assert self.server is not None
        return self.server.durable

    @property
    def durability(self) -> str:
        """The settings that decide that, by their own names."""
        assert self.server is not None
        return self.server.durability

    def versions(self) -> Mapping[str, str]:
        """Return the versions of the system's packages and of its server."""
        found = {package: version(package) for package in self.packages}
        return found if self.server is None else found | {self.server.name: self.server.version()}

    def prepare(self) -> None:  # noqa: B027 - most have nothing to do here
        """Do once what its documentation says to do before the first job, such as making tables. The server runs."""

    @abstractmethod
    def worker_command(self, number: int) -> Sequence[str]:
        """Return the command that runs worker `number`, from 0, in the foreground, with `slots_per_worker` slots."""

    @abstractmethod
    def producer(self) -> AbstractContextManager[Producer]:
        """Open what this process sends jobs with."""

    @abstractmethod
    def left(self) -> int:
        """Return how many jobs are not done yet: waiting, or started without a recorded end."""

    def processes_to_kill(self, worker: int, ran: int) -> list[int]:
        """Return the processes to kill with the worker that runs a job: by default all of it.

        Args:
          worker: the process that `worker_command` became.
          ran: the process that runs the job.
        """
        return [worker, *processes.below(worker)]

    @property
    def slots_per_worker(self) -> int:
        """How many jobs one worker runs at once in this turn."""
        return self.best_slots if CONTEXT.slots is None else max(1, CONTEXT.slots // self.worker_count)
