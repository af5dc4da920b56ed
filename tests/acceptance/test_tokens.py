"""A user's module imports Ray, and a token lies in the home directory, as after the first run on a machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.fleets import config, eventually, machine, opened, written
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
