"""A pgbouncer that tests start between users and a PostgreSQL: connections of users share those of the server.

In transaction mode a user has a connection of the server for one transaction only. Tests are skipped where pgbouncer is
missing.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
from pathlib import Path

from bench.peers.round_context import RoundContext
from bench.peers.servers import HOST, Server, unprivileged_user

PROGRAM = "pgbouncer"


def missing() -> str:
    """Return why no test with pgbouncer can run here; "": nothing is missing."""
    return "" if _path() else f"{PROGRAM} is not installed: make test installs it, or apt-get install {PROGRAM}"


class PgBouncer(Server):
    """A pooler in transaction mode, which lets users wait for one of a few connections of the server."""

    name = "pgbouncer"
    durability = "none: it stores nothing"
    durable = False

    SETTINGS = (
        "auth_type = any", "pool_mode = transaction", "default_pool_size = 4", "max_client_conn = 100",
        "server_login_retry = 0.2", "server_round_robin = 1", "ignore_startup_parameters = extra_float_digits",
        "unix_socket_dir =",
    )  # fmt: skip

    def __init__(self, context: RoundContext, server_port: int) -> None:
        super().__init__(context)
        self._server_port = server_port

    @property
    def url(self) -> str:
        """See `Server`."""
        return f"postgresql://postgres@{HOST}:{self.context.port}/postgres"

    def version(self) -> str:
        """See `Server`."""
        return subprocess.run([_path(), "--version"], capture_output=True, text=True, check=True).stdout.split()[1]

    def _launch(self, log: int) -> subprocess.Popen[bytes]:
        user = unprivileged_user()
        configuration = self.directory / "pgbouncer.ini"
        databases = ["[databases]", f"* = host={HOST} port={self._server_port} user=postgres"]
        listening = ["[pgbouncer]", f"listen_addr = {HOST}", f"listen_port = {self.context.port}"]
        configuration.write_text("\n".join([*databases, *listening, *self.SETTINGS]) + "\n")
        if user is not None:
            shutil.chown(self.directory, user)
        return subprocess.Popen([_path(), str(configuration)], user=user, stdout=log, stderr=log, cwd="/")

    def _answers(self) -> bool:
        try:
            with socket.create_connection((HOST, self.context.port), timeout=1):
                return True
        except OSError:
            return False


def _path() -> str:
    """Return where the program is, which Debian keeps among those of administrators; "": it is not there."""
    return shutil.which(PROGRAM) or next((str(each) for each in [Path("/usr/sbin") / PROGRAM] if each.exists()), "")
