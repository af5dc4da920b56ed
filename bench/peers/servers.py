"""The servers that peers need, from the packages of the operating system: each on its own port with its own data.

The instances that the operating system runs are never touched. Data lies in the round's directory, on the same disk as
all data, and is deleted with it.

Redis: an append-only file, fsynced before each answer (`always`) or once a second (`everysec`), and no snapshots
(https://redis.io/docs/latest/operate/oss_and_stack/management/persistence/).

PostgreSQL: the settings for durability are the defaults, set explicitly: fsync, synchronous_commit and full_page_writes
are on. It has more memory than the default, and no checkpoint within a round, as its documentation recommends for
servers on a machine of their own (https://www.postgresql.org/docs/15/runtime-config-resource.html, ...-wal.html).
"""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from pathlib import Path

from bench.peers.round_context import CONTEXT, RoundContext

HOST = "127.0.0.1"
ANSWER_S_MAX = 30.0
STOP_S_MAX = 10.0


class NotInstalled(Exception):
    """A requirement of a system is not on this machine; the text names it, and how to install it."""


class ServerFailed(Exception):
    """A server did not start; the text has the end of its log."""


class Server(ABC):
    """One server of one round.

    Args:
      context: of the round; None: that of this process.

    Attributes:
      durability: the settings for durability, by their own names.
      durable: whether an acknowledged write survives a power cut.
      end_signal: the signal that ends the server at once. A program that a shell starts in the background ignores
        SIGQUIT, and so do servers below it that do not handle this signal.
    """

    end_signal = signal.SIGKILL
    name: str
    durability: str
    durable: bool

    def __init__(self, context: RoundContext | None = None) -> None:
        self.context = context or CONTEXT
        self.directory = self.context.directory / self.name.lower()
        self.log = self.context.directory / f"{self.name.lower()}.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    @abstractmethod
    def url(self) -> str:
        """The address for clients."""

    @abstractmethod
    def version(self) -> str:
        """Return the installed version. Raises `NotInstalled` if there is none."""

    def start(self) -> None:
        """Start the server on this round's port, and return once it answers. One that was stopped has its data still.

        Raises:
          NotInstalled: its package is not installed.
          ServerFailed: it did not answer within half a minute.
        """
        self.version()
        self.directory.mkdir(exist_ok=True)
        with self.log.open("ab") as log:
            self._process = self._launch(log.fileno())
        until_s = time.monotonic() + ANSWER_S_MAX
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > until_s:
                raise ServerFailed(f"{self.name} did not start: {self.log.read_text(errors='replace')[-500:]}")
            time.sleep(0.02)

    def stop(self) -> None:
        """End the server at once, as a crash would."""
        if self._process is not None:
            self._process.send_signal(self.end_signal)
            try:
                self._process.wait(STOP_S_MAX)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    @abstractmethod
    def _launch(self, log: int) -> subprocess.Popen[bytes]: ...

    @abstractmethod
    def _answers(self) -> bool: ...


class Redis(Server):
    """Redis with an append-only file. `fsync`: "always" or "everysec"."""

    name = "Redis"

    def __init__(self, fsync: str) -> None:
        super().__init__()
        self._fsync = fsync
        self.durable = fsync == "always"
        self.durability = f"Redis, appendonly yes, appendfsync {fsync}"

    @property
    def url(self) -> str:
        """See `Server`."""
        return f"redis://{HOST}:{self.context.port}/0"

    def version(self) -> str:
        """See `Server`."""
        return _output(_program("redis-server", "redis-server"), "--version").split("v=")[1].split()[0]

    def _launch(self, log: int) -> subprocess.Popen[bytes]:
        settings = {
            "bind": HOST, "port": self.context.port, "dir": self.directory, "save": "", "daemonize": "no",
            "appendonly": "yes", "appendfsync": self._fsync,
        }  # fmt: skip
        arguments = [text for key, value in settings.items() for text in (f"--{key}", str(value))]
        return subprocess.Popen([_program("redis-server", "redis-server"), *arguments], stdout=log, stderr=log)

    def _answers(self) -> bool:
        try:
            with socket.create_connection((HOST, self.context.port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(7) == b"+PONG\r\n"
        except OSError:
            return False


class Postgres(Server):
    """PostgreSQL with its default durability. Root may not run it; then the user of its package does, or `nobody`."""

    end_signal = signal.SIGQUIT  # On this signal it frees its shared memory.
    name = "PostgreSQL"
    durable = True
    durability = "PostgreSQL, fsync on, synchronous_commit on"

    SETTINGS: tuple[str, ...] = (
        "fsync=on", "synchronous_commit=on", "full_page_writes=on",
        "shared_buffers=512MB", "max_wal_size=8GB", "checkpoint_timeout=30min", "max_connections=200",
    )  # fmt: skip

    @property
    def url(self) -> str:
        """See `Server`."""
        return f"postgresql://postgres@{HOST}:{self.context.port}/postgres"

    def version(self) -> str:
        """See `Server`."""
        return _output(postgres_program("postgres"), "--version").split()[2]

    def _launch(self, log: int) -> subprocess.Popen[bytes]:
        user = unprivileged_user()
        if user is not None:
            shutil.chown(self.directory, user)
        data = str(self.directory / "data")
        if not (self.directory / "data").exists():
            subprocess.run(
                [
                    postgres_program("initdb"), "--pgdata", data, "--username", "postgres", "--auth", "trust",
                    "--no-sync",
                ],
                user=user, stdout=log, stderr=log, cwd="/", check=True,
            )  # fmt: skip
        settings = [text for each in self.SETTINGS for text in ("-c", each)]
        listening = ["-h", HOST, "-p", str(self.context.port), "-k", ""]
        return subprocess.Popen(
            [postgres_program("postgres"), "-D", data, *listening, *settings],
            user=user,
            stdout=log,
            stderr=log,
            cwd="/",
        )

    def _answers(self) -> bool:
        asked = [postgres_program("pg_isready"), "-h", HOST, "-p", str(self.context.port), "-q"]
        return subprocess.run(asked, check=False).returncode == 0


def unprivileged_user() -> str | None:
    """Return the user for a server that refuses to run as root; None if this process is not root."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


def postgres_program(program: str) -> str:
    """Return the path of one of PostgreSQL's programs. Debian has a folder for the programs of each version."""
    versions = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{program}"), key=lambda path: float(path.parts[-3]))
    return str(versions[-1]) if versions else _program(program, "postgresql")


def _program(name: str, package: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise NotInstalled(f"{name} is not installed: make bench-peers installs it, or apt-get install {package}")
    return path


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
