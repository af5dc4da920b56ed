"""Ray's tokens: a cluster that `fairlead run` starts has one, whoever has none is told so, and it is shown nowhere."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import pytest

from tests.acceptance.fleets import PATIENCE_S, Machine, config, eventually, machine, opened, written
from tests.acceptance.loads import depth

MODULE = """
import ray
import fairlead

app = fairlead.App()

@app.handler("remote")
@ray.remote
def remote(job):
    pass
"""


def test_a_module_that_imports_ray_runs_where_a_token_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray reads its mode once, when it is imported; found later it did not fit the token, and no fleet started."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    token = tmp_path / ".ray" / "auth_token"
    token.parent.mkdir()
    token.write_text("5" * 64)
    (tmp_path / "remote_work.py").write_text(MODULE)
    chosen = config(tmp_path)
    written(chosen, tmp_path)
    with opened(chosen) as app, machine(tmp_path) as on, (tmp_path / "log").open("w") as log:
        app.tenant("shop", "alice").enqueue("remote")
        on.run("run", "remote_work:app", "--config", "fairlead.toml", log=log)
        eventually(lambda: depth(app) == 0, otherwise=(tmp_path / "log").read_text)


FEW_TRIES = {"RAY_NUM_REDIS_GET_RETRIES": "2"}  # Ray asks for half a minute otherwise.
FLEET = ("run", "work:app", "--config", "fairlead.toml")


def address_of(on: Machine) -> str | None:
    """Return where the head of the cluster that was started on a machine listens."""
    for pid in on.pids():
        with contextlib.suppress(OSError):
            found = re.search(rb"--gcs-address=([\w.:]+)", Path(f"/proc/{pid}/cmdline").read_bytes())
            if found is not None:
                return found[1].decode()
    return None


def test_a_cluster_that_a_fleet_started_takes_nobody_without_its_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever reaches an open Ray port runs code on the node; so the port is not open, by default."""
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    home.mkdir()
    elsewhere.mkdir()
    (tmp_path / "work.py").write_text(MODULE)
    chosen = config(tmp_path)
    written(chosen, tmp_path)
    log = tmp_path / "log"
    with opened(chosen) as app, machine(tmp_path) as head, machine(tmp_path) as other, log.open("w") as file:
        head.run(*FLEET, "--set", "log_level=debug", env={"HOME": str(home)}, log=file)
        app.tenant("shop", "alice").enqueue("remote")
        eventually(lambda: depth(app) == 0, otherwise=log.read_text)
        token = home / ".ray" / "auth_token"
        assert token.stat().st_mode & 0o077 == 0, "only its owner reads it"
        assert token.read_text() not in log.read_text()
        address = address_of(head)
        assert address is not None
        asking = [
            other.run(*FLEET, "--address", address, "--json", env={"HOME": str(elsewhere), **FEW_TRIES, **variables})
            for variables in ({}, {"RAY_AUTH_MODE": "token"})
        ]
        for each in asking:
            _, said = each.communicate(timeout=PATIENCE_S)
            assert (each.returncode, "give this machine the head's token" in said) == (2, True), said
            assert token.read_text() not in said
