"""Through Ray: what a handler tells while it runs, what it returns, and that it ends when its item is taken back."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlead import App, Cause, Config, Handle, NoResult
from tests.acceptance.fleets import config, consumer, eventually
from tests.acceptance.loads import lines_of
from tests.acceptance.shop import payload

pytestmark = pytest.mark.usefixtures("cluster")

# A running handler learns that its item was cancelled from its worker's status, which is written every second. An
# extension of its lease finds out too: at the earliest after a third of it, which is longer than `eventually` waits.
LEASE_MS = 600_000
REMOTE = "tests.acceptance.remote_shop:app"


@pytest.fixture
def chosen(tmp_path: Path) -> Config:
    return config(tmp_path, lease_ms=LEASE_MS)


def has_told(handle: Handle) -> bool:
    return handle.explain().progress is not None


def test_a_coroutine_tells_its_progress_and_returns_its_result(app: App, chosen: Config, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with consumer(chosen):
        handle = app.tenant("shop", "alice").enqueue("told", payload(7, path=str(gate)))
        eventually(lambda: has_told(handle))
        said = handle.explain()
        assert said.progress is not None
        assert (said.cause, said.progress.done, said.progress.total) == (Cause.RUNNING, 1, 2)
        gate.touch()
        assert handle.result(timeout=30) == {"number": 7}


def test_a_ray_task_tells_its_progress_and_returns_its_result(app: App, chosen: Config, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with consumer(chosen, reference=REMOTE):
        handle = app.tenant("shop", "alice").enqueue("tell", payload(7, path=str(gate)))
        eventually(lambda: has_told(handle))
        gate.touch()
        assert handle.result(timeout=30)["told"] > 1


@pytest.mark.parametrize("kind", ["told", "until_told"])
def test_a_running_handler_hears_that_its_item_was_cancelled(
    app: App, chosen: Config, tmp_path: Path, kind: str
) -> None:
    gate = tmp_path / "gate"
    with consumer(chosen):
        handle = app.tenant("shop", "alice").enqueue(kind, payload(7, path=str(gate)))
        eventually(lambda: lines_of(tmp_path / "gate.begun"))
        handle.cancel()
        eventually(lambda: lines_of(tmp_path / "gate.ended"))
        assert "cancelled" in lines_of(tmp_path / "gate.ended")[0]
        with pytest.raises(NoResult, match="cancelled"):
            handle.result()


def test_the_ray_task_of_a_cancelled_item_is_killed(app: App, chosen: Config, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    with consumer(chosen, reference=REMOTE):
        handle = app.tenant("shop", "alice").enqueue("linger_on", payload(7, path=str(notes)))
        eventually(lambda: lines_of(notes))
        pid = int(lines_of(notes)[0].split()[1])
        handle.cancel()
        eventually(lambda: not Path(f"/proc/{pid}").exists())
