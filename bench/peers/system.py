"""The interface of every system, so that a measure handles Celery, DBOS and Fairlead in the same way."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from importlib.metadata import version
from typing import ClassVar, Protocol

from bench.peers import processes
from bench.peers.job import Job
from bench.peers.round_context import CONTEXT
from bench.peers.servers import Server

WORKERS = 2  # For every system: one worker can be killed while another one lives.
ORDERS = "CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, tenant text NOT NULL)"
ORDER = "INSERT INTO orders (tenant) VALUES (%s)"


class Producer(Protocol):
    """A sender of jobs in one process, over connections that stay open."""

    def send(self, job: Job) -> None:
        """Send one job, and return once the system has acknowledged it."""
        ...

    def send_many(self, jobs: Sequence[Job]) -> None:
        """Send jobs, and return once the system has acknowledged all: in one call if it has one, else one by one."""
        ...


class System(ABC):
    """One queue in its best documented configuration, in one round. Its module's docstring cites the documentation.

    Attributes:
      title: its name in the table.
      settings: the settings that are not the default, by their own names.
      packages: the distributions whose versions belong to a figure.
      has_bulk: whether its interface can enqueue many jobs in one call.
      best_slots: jobs at once in one worker, unless the measure sets a number.
      drain_factor: it drains this multiple of jobs, so that the drain of a fast system takes seconds, too.
      worker_count: the number of commands that run workers.
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
        """The settings for durability, by their own names."""
        assert self.server is not None
        return self.server.durability

    def versions(self) -> Mapping[str, str]:
        """Return the versions of the system's packages and of its server."""
        found = {package: version(package) for package in self.packages}
        return found if self.server is None else found | {self.server.name: self.server.version()}

    def prepare(self) -> None:  # noqa: B027 - most have nothing to do here
        """Do the documented steps before the first job, such as creating tables. The server runs."""

    @abstractmethod
    def worker_command(self, number: int) -> Sequence[str]:
        """Return the command that runs worker `number`, from 0, in the foreground, with `slots_per_worker` slots."""

    @abstractmethod
    def producer(self) -> AbstractContextManager[Producer]:
        """Open the producer of this process."""

    @abstractmethod
    def left(self) -> int:
        """Return the number of jobs that are not done yet: waiting, or started without a recorded end."""

    def processes_to_kill(self, worker: int, ran: int) -> list[int]:
        """Return the processes to kill with the worker that runs a job: by default all processes of the worker.

        Args:
          worker: the process of `worker_command`.
          ran: the process that runs the job.
        """
        return [worker, *processes.below(worker)]

    def buyer(self) -> AbstractContextManager[Producer]:
        """Open a producer of this process that sends each job in a user's transaction, which also inserts a row.

        Only for the measure `within`. The row goes into the table of `ORDERS`.
        """
        raise NotImplementedError

    def later(self) -> AbstractContextManager[Producer]:
        """Open a producer of this process whose jobs are to run tomorrow. Only for the measure `flush`."""
        raise NotImplementedError

    def silence(self) -> None:
        """Let senders no longer notify workers of jobs. Only for the measure `flush`."""
        raise NotImplementedError

    def enqueue_for_later(self, tenants: int) -> None:
        """Enqueue one job of each of so many tenants, which are to run tomorrow. Only for the measure `million`."""
        raise NotImplementedError

    @property
    def slots_per_worker(self) -> int:
        """The number of jobs that one worker runs at once in this round."""
        return self.best_slots if CONTEXT.slots is None else max(1, CONTEXT.slots // self.worker_count)
