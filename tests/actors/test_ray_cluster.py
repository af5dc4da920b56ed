"""Starting Ray in this process: the umask of its actors, and its token. Ray itself is not started here."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlead.actors.runtime import ray_host
from fairlead.actors.runtime.ray_host import cluster

# isort: split
import ray

MASK = 0o002


@pytest.fixture
def token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The path of Ray's token, for a user without one whose new files are readable for a group."""
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / ".ray" / "auth_token"
    monkeypatch.setattr(cluster, "TOKEN_FILE", path)
    before = os.umask(MASK)
    yield path
    os.umask(before)


@pytest.fixture
def masks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The umask that Ray's processes would inherit, each time that Ray is started."""
    found: list[int] = []

    def init(**options: Any) -> None:
        mask = os.umask(0o077)
        os.umask(mask)
        found.append(mask)

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(cluster, "_log_messages_of_ray", lambda: None)
    return found


def test_handlers_inherit_the_umask_of_the_program(token: Path, masks: list[int]) -> None:
    """Their files were readable for their owner only."""
    ray_host.connect("local")
    assert masks == [MASK]


def test_only_its_owner_can_read_the_token_and_it_is_complete(token: Path, masks: list[int]) -> None:
    ray_host.connect("local")
    made = token.read_text()
    assert made
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    assert stat.S_IMODE(token.parent.stat().st_mode) == 0o700
    assert list(token.parent.iterdir()) == [token]
    ray_host.connect("local")
    assert token.read_text() == made


def test_a_fleet_that_starts_at_the_same_time_never_finds_an_empty_token(
    token: Path, masks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray refuses an empty token: the second fleet did not start, and after a crash at that moment no fleet did."""
    seen: list[bool] = []

    def generate() -> str:
        seen.append(token.exists())
        return "secret"

    monkeypatch.setattr(cluster, "generate_new_authentication_token", generate)
    ray_host.connect("local")
    assert seen == [False]
    assert token.read_text() == "secret"
