"""The servers that peers need, as the system's packages bring them: each on its own port with its own data.

The instances that the system itself runs are never touched. Data lies in the turn's directory, on the same disk as
everybody's, and is thrown away with it.

Redis: an append-only file, fsynced before each answer (`always`) or once a second (`everysec`), and no snapshots beside
it (https://redis.io/docs/latest/operate/oss_and_stack/management/persistence/).

PostgreSQL: what decides over durability is as it comes, and said aloud: fsync, synchronous_commit and full_page_writes
are on. More memory than its cautious default, and no checkpoint within a turn, as its documentation recommends for
servers that have the machine (https://www.postgresql.org/docs/15/runtime-config-resource.html, ...-wal.html).
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

from bench.peers.round_context import CONTEXT

HOST = "127.0.0.1"
ANSWER_S_MAX = 30.0
STOP_S_MAX = 10.0


class NotInstalled(Exception):
    """Something that a system needs is not on this machine; the text says what, and how to get it."""


class ServerFailed(Exception):
    """A server did not start; the text holds the end of its log."""


class Server(ABC):
    """One server of one turn.

    Attributes:
      durability: what an acknowledged write has survived, with the settings by their own names.
      durable: whether it survives a power cut.
      end_signal: what ends it at once. A shell that starts something in the background makes it ignore SIGQUIT, and so
        do its servers that do not handle that signal.
    """

    end_signal = signal.SIGKILL
    name: str
    durability: str
    durable: bool

    def __init__(self) -> None:
        self.directory = CONTEXT.directory / self.name.lower()
        self.log = CONTEXT.directory / f"{self.name.lower()}.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    @abstractmethod
    def url(self) -> str:
        """What clients connect to."""

    @abstractmethod
    def version(self) -> str:
        """Return the version that is installed. `NotInstalled`: none is."""

    def start(self) -> None:
        """Start it on this turn's port, and return once it answers.

        Raises:
          NotInstalled: its package is not installed.
          ServerFailed: it did not answer within half a minute.
        """
        self.version()
        self.directory.mkdir()
        with self.log.open("ab") as log:
            self._process = self._launch(log.fileno())
        until_s = time.monotonic() + ANSWER_S_MAX
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > until_s:
                raise ServerFailed(f"{self.name} did not start: {self.log.read_text(errors='replace')[-500:]}")
            time.sleep(0.02)

    def stop(self) -> None:
        """End it without ceremony: its data is thrown away."""
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
        return f"redis://{HOST}:{CONTEXT.port}/0"

    def version(self) -> str:
        """See `Server`."""
        return _output(_program("redis-server", "redis-server"), "--version").split("v=")[1].split()[0]

    def _launch(self, log: int) -> subprocess.Popen[bytes]:
        settings = {
            "bind": HOST, "port": CONTEXT.port, "dir": self.directory, "save": "", "daemonize": "no",
            "appendonly": "yes", "appendfsync": self._fsync,
        }  # fmt: skip
        arguments = [text for key, value in settings.items() for text in (f"--{key}", str(value))]
        return subprocess.Popen([_program("redis-server", "redis-server"), *arguments], stdout=log, stderr=log)

    def _answers(self) -> bool:
        try:
            with socket.create_connection((HOST, CONTEXT.port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(7) == b"+PONG\r\n"
        except OSError:
            return False


class Postgres(Server):
    """PostgreSQL, durable as it comes. Root may not run it: then the user of its package does, or `nobody`."""

    end_signal = signal.SIGQUIT  # On this one it gives back its shared memory.
    name = "PostgreSQL"
    durable = True
    durability = "PostgreSQL, fsync on, synchronous_commit on"

    SETTINGS = (
        "fsync=on", "synchronous_commit=on", "full_page_writes=on",
        "shared_buffers=512MB", "max_wal_size=8GB", "checkpoint_timeout=30min", "max_connections=200",
    )  # fmt: skip

    @property
    def url(self) -> str:
        """See `Server`."""
        return f"postgresql://postgres@{HOST}:{CONTEXT.port}/postgres"

    def version(self) -> str:
        """See `Server`."""
        return _output(_postgres("postgres"), "--version").split()[2]

    def _launch(self, log: int) -> subprocess.Popen[bytes]:
        user = _unprivileged()
        if user is not None:
            shutil.chown(self.directory, user)
        data = str(self.directory / "data")
        subprocess.run(
            [_postgres("initdb"), "--pgdata", data, "--username", "postgres", "--auth", "trust", "--no-sync"],
            user=user, stdout=log, stderr=log, cwd="/", check=True,
        )  # fmt: skip
        settings = [text for each in self.SETTINGS for text in ("-c", each)]
        listening = ["-h", HOST, "-p", str(CONTEXT.port), "-k", ""]
        return subprocess.Popen(
            [_postgres("postgres"), "-D", data, *listening, *settings], user=user, stdout=log, stderr=log, cwd="/"
        )

    def _answers(self) -> bool:
        asked = [_postgres("pg_isready"), "-h", HOST, "-p", str(CONTEXT.port), "-q"]
        return subprocess.run(asked, check=False).returncode == 0


def _unprivileged() -> str | None:
    """Return who runs what refuses to be run by root; None if we are not root."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


def _postgres(program: str) -> str:
    """Return the path of one of PostgreSQL's programs: Debian keeps those of each version in a folder of its own."""
    versions = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{program}"), key=lambda path: float(path.parts[-3]))
    return str(versions[-1]) if versions else _program(program, "postgresql")


def _program(name: str, package: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise NotInstalled(f"{name} is not installed: make bench-peers installs it, or apt-get install {package}")
    return path


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
