"""The peers' servers have their own port and data, are as durable as their rows say, and end with their round."""

import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from bench.peers import servers
from bench.peers.round_context import RoundContext
from bench.peers.servers import HOST, NotInstalled, Postgres, Redis

REDIS = shutil.which("redis-server")
POSTGRES = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))


@pytest.fixture
def context(monkeypatch: pytest.MonkeyPatch) -> Iterator[RoundContext]:
    """The context of a round in a directory that another user's server can enter, unlike pytest's own directories."""
    with closing(socket.socket()) as probe, tempfile.TemporaryDirectory() as directory:
        probe.bind((HOST, 0))
        port = probe.getsockname()[1]
        probe.close()
        Path(directory).chmod(0o711)
        context = RoundContext(system="here", directory=Path(directory), port=port)
        monkeypatch.setattr(servers, "CONTEXT", context)
        yield context


def answered(context: RoundContext) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, context.port)) == 0


def said(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_a_server_that_is_not_installed_raises_an_error_that_says_how_to_install_it(
    context: RoundContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(NotInstalled, match="apt-get install redis-server"):
        Redis("always").start()


@pytest.mark.skipif(not REDIS, reason="no redis-server: apt-get install redis-server")
@pytest.mark.parametrize("fsync", ["always", "everysec"])
def test_redis_writes_ahead_and_syncs_as_its_rows_say(context: RoundContext, fsync: str) -> None:
    server = Redis(fsync)
    server.start()
    try:
        ask = ["redis-cli", "-p", str(context.port), "config", "get"]
        assert said(*ask, "appendonly").split() == ["appendonly", "yes"]
        assert said(*ask, "appendfsync").split() == ["appendfsync", fsync]
        assert said(*ask, "dir").split() == ["dir", str(context.directory / "redis")]
    finally:
        server.stop()
    assert not answered(context)


@pytest.mark.skipif(not POSTGRES, reason="no PostgreSQL: apt-get install postgresql")
def test_postgresql_is_durable_as_its_rows_say_and_does_not_run_as_root(context: RoundContext) -> None:
    server = Postgres()
    server.start()
    try:
        ask = [str(POSTGRES[-1].with_name("psql")), server.url, "--tuples-only", "--no-align", "--command"]
        shown = [said(*ask, f"SHOW {name}") for name in ("fsync", "synchronous_commit", "full_page_writes")]
        assert shown == ["on", "on", "on"]
        assert said(*ask, "SHOW data_directory") == str(context.directory / "postgresql" / "data")
    finally:
        server.stop()
    assert not answered(context)
