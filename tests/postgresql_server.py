"""A PostgreSQL that tests start: from the system's packages, with a port and data of its own.

Tests are skipped where it is missing, or psycopg.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.peers.round_context import RoundContext
from bench.peers.servers import HOST, NotInstalled, Postgres, postgres_program, unprivileged_user
from tests.foundationdb_server import free_port


class TestedPostgres(Postgres):
    """A small server. It need not survive a power cut, only its own end."""

    __test__ = False
    SETTINGS = ("fsync=off", "shared_buffers=32MB", "max_connections=150", "max_prepared_transactions=10")


def missing() -> str:
    """Return why no test with PostgreSQL can run here; "": nothing is missing."""
    if importlib.util.find_spec("psycopg") is None:
        return "psycopg is not installed: the extra `postgresql` has it"
    try:
        Postgres().version()
    except NotInstalled as error:
        return str(error)
    return ""


@contextmanager
def started() -> Iterator[TestedPostgres]:
    """Yield a server, started; end it. Its directory is no test's: the server's user must be able to enter it."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o711)
        server = TestedPostgres(RoundContext(directory=Path(directory), port=free_port()))
        try:
            server.start()
            yield server
        finally:
            server.stop()


@contextmanager
def standby(primary: TestedPostgres) -> Iterator[TestedPostgres]:
    """Yield a copy of a server that follows it until it is promoted; end it."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o711)
        server = TestedPostgres(RoundContext(directory=Path(directory), port=free_port()))
        server.directory.mkdir()
        user = unprivileged_user()
        if user is not None:
            shutil.chown(server.directory, user)
        copied = [
            postgres_program("pg_basebackup"), "--host", HOST, "--port", str(primary.context.port), "--username",
            "postgres", "--pgdata", str(server.directory / "data"), "--write-recovery-conf", "--checkpoint", "fast",
            "--no-sync",
        ]  # fmt: skip
        subprocess.run(copied, user=user, cwd="/", check=True, capture_output=True)
        try:
            server.start()
            yield server
        finally:
            server.stop()
