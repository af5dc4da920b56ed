"""What can be said of the FoundationDB engine without a cluster."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fairlead.zones.engines import StoreUnavailable, StreamingMode
from fairlead.zones.engines import open as open_database
from fairlead.zones.engines.api.errors import TRANSACTION_TIMED_OUT
from tests.clocks import ManualClock


def test_other_engines_do_not_load_the_binding() -> None:
    script = (
        "import sys, random; from tests.clocks import ManualClock; from fairlead.zones.engines import open\n"
        "open('memory:', clock=ManualClock(), random=random.Random(1))\n"
        "assert not [name for name in sys.modules if name == 'fdb' or name.startswith('fdb.')]\n"
    )
    root = Path(__file__).parents[3]
    assert subprocess.run([sys.executable, "-c", script], check=False, cwd=root).returncode == 0


def test_streaming_modes_are_the_bindings_integers() -> None:
    options = pytest.importorskip("fdb.fdboptions")
    ours = {name: value for name, value in vars(StreamingMode).items() if not name.startswith("_")}
    assert ours == {name: value[0] for name, value in options.StreamingMode.items()}


def test_every_option_that_is_accepted_without_effect_is_one_of_the_bindings() -> None:
    options = pytest.importorskip("fdb.fdboptions")
    from fairlead.zones.engines.optimistic.options import WITHOUT_EFFECT

    assert set(options.TransactionOption) >= WITHOUT_EFFECT


def test_a_missing_client_library_is_named_with_the_package_that_brings_it() -> None:
    from fairlead.zones.engines.foundationdb import engine

    if engine._client_library_found():
        pytest.skip("the client library is installed here")
    with pytest.raises(StoreUnavailable, match="foundationdb-clients") as caught:
        open_database("fdb:", clock=ManualClock(), random=random.Random(1))
    assert caught.value.reason == "FoundationDB's client library is missing"
    assert "github.com/apple/foundationdb/releases" in caught.value.remedy


@pytest.mark.foundationdb
def test_a_cluster_that_is_away_is_noticed_on_opening(tmp_path: Path) -> None:
    cluster_file = tmp_path / "fdb.cluster"
    cluster_file.write_text("nobody:here@127.0.0.1:1\n")
    with pytest.raises(StoreUnavailable) as caught:
        open_database(f"fdb:{cluster_file}", clock=ManualClock(), random=random.Random(1))
    assert caught.value.reason == "the cluster does not answer"


def test_the_binding_has_a_timeout_for_all_transactions_of_a_database() -> None:
    """What it has no option for, it tells only when it is asked to set it: with a cluster."""
    options = pytest.importorskip("fdb.fdboptions")
    _, _, parameter, _ = options.DatabaseOption["transaction_timeout"]
    assert parameter is int


@pytest.mark.foundationdb
def test_no_transaction_waits_for_ever_for_a_cluster_that_is_away(tmp_path: Path) -> None:
    from fairlead.zones.engines.foundationdb import engine

    cluster_file = tmp_path / "fdb.cluster"
    cluster_file.write_text("nobody:here@127.0.0.1:1\n")
    engine._load_client()
    tr = engine._clusters.connect(str(cluster_file)).create_transaction()
    with pytest.raises(pytest.importorskip("fdb").FDBError) as caught:
        tr.get(b"key").wait()
    assert caught.value.code == TRANSACTION_TIMED_OUT


@pytest.mark.foundationdb
def test_a_cluster_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable) as caught:
        open_database(f"fdb:{tmp_path / 'missing'}", clock=ManualClock(), random=random.Random(1))
    assert caught.value.reason == "the cluster file cannot be read"


# --- Errors of the client in words ---


@dataclass
class ClientError(Exception):
    """An error of the client, as far as it is looked at: the class itself needs the client library."""

    code: int


@pytest.mark.parametrize(
    "code, cluster_file, reason, remedy",
    [
        (TRANSACTION_TIMED_OUT, "some.cluster", "the cluster does not answer", "fdbcli"),
        (1515, "", "this machine has no default cluster file", "/etc/foundationdb/fdb.cluster"),
        (2104, "some.cluster", "the cluster file cannot be used", "name:id@127.0.0.1:4500"),
        (1515, "some.cluster", "the cluster file cannot be used", "name:id@127.0.0.1:4500"),
    ],
)
def test_a_cluster_that_cannot_be_reached_is_named_with_what_to_do(
    code: int, cluster_file: str, reason: str, remedy: str
) -> None:
    """Before, the client's own errors came out with their tracebacks, on the first transaction."""
    from fairlead.zones.engines.foundationdb import engine

    told = engine.unreachable(cluster_file, ClientError(code))
    assert told.reason == reason
    assert remedy in told.remedy


@pytest.mark.foundationdb
def test_a_file_that_is_no_cluster_file_is_named(tmp_path: Path) -> None:
    cluster_file = tmp_path / "fdb.cluster"
    cluster_file.write_text("[main]\nsome other program's settings\n")
    with pytest.raises(StoreUnavailable) as caught:
        open_database(f"fdb:{cluster_file}", clock=ManualClock(), random=random.Random(1))
    assert caught.value.reason == "the cluster file cannot be used"
    assert str(cluster_file) in str(caught.value)


# --- Forks ---

FORK = """
import os, random, sys
from tests.clocks import ManualClock
from fairlead.zones.engines import StoreUnavailable, open as open_engine
from fairlead.zones.engines.foundationdb import engine

def opened():
    {opened}

database = opened()
child = os.fork()
if child == 0:
    for use in (lambda: database.create_transaction(), opened):
        try:
            use()
        except StoreUnavailable as error:
            assert "does not survive a fork" in str(error) and "Open the application after the fork" in error.remedy
        else:
            os._exit(1)
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) or not database.create_transaction())
"""
# As it is once a cluster has been opened, without one.
STANDING_IN = """
    class Client:
        def create_transaction(self):
            return self

    clusters = engine._clusters
    if not clusters._opened:
        clusters._network_runs = True
        clusters._opened[""] = engine.FoundationDatabase("fdb:", "", (), Client())
    return open_engine("fdb:", clock=ManualClock(), random=random.Random(1))
"""
REAL = """
    return open_engine("fdb:" + os.environ["FDB_CLUSTER_FILE"], clock=ManualClock(), random=random.Random(1))
"""


@pytest.mark.parametrize("opened", [STANDING_IN, pytest.param(REAL, marks=pytest.mark.foundationdb)], ids=["", "real"])
def test_a_process_that_was_forked_after_a_cluster_was_opened_says_so(opened: str) -> None:
    """Before, its first read waited without end: what would have timed it out is the thread that is not there."""
    root = Path(__file__).parents[3]
    script = FORK.format(opened=opened.strip())
    ran = subprocess.run([sys.executable, "-c", script], cwd=root, timeout=60, check=False, capture_output=True)
    assert (ran.returncode, ran.stderr) == (0, b"")


def test_a_process_that_was_forked_before_a_cluster_was_opened_may_open_one() -> None:
    from fairlead.zones.engines.foundationdb import engine

    clusters = engine.Clusters()
    clusters.invalidate_after_fork()
    assert not clusters._invalid_after_fork


class BindingsFuture:
    """What the binding's futures have that matters to a wait. It is ready once it has been waited for."""

    def __init__(self, waits: list[str]) -> None:
        self.fpointer = 7
        self.waits = waits

    def is_ready(self) -> bool:
        return bool(self.waits)

    def block_until_ready(self) -> None:
        self.waits.append("called back")


class _Waiting:
    """A function of the client's."""

    def __init__(self, waits: list[str]) -> None:
        self.argtypes: list[Any] = []
        self._waits = waits

    def __call__(self, pointer: int) -> None:
        assert pointer == 7
        self._waits.append("in the client")


def waited(in_thread: bool) -> list[str]:
    """Return how a thread, or the main one, waits twice for a future that was asked to wait in the client twice."""
    from fairlead.zones.engines.foundationdb.engine import _wait_in_client

    waits: list[str] = []

    class Patched(BindingsFuture):
        capi = SimpleNamespace(fdb_future_block_until_ready=_Waiting(waits))

    for _ in range(2):
        _wait_in_client(Patched)
    future = Patched(waits)

    def wait() -> None:
        future.block_until_ready()
        future.block_until_ready()

    if in_thread:
        thread = threading.Thread(target=wait)
        thread.start()
        thread.join()
    else:
        wait()
    return waits


def test_a_thread_waits_in_the_client_and_the_main_thread_where_it_hears_of_signals() -> None:
    """A callback makes the client's network thread wait for the interpreter, and all that comes from the cluster."""
    pytest.importorskip("fdb")
    assert waited(in_thread=True) == ["in the client"]
    assert waited(in_thread=False) == ["called back"]
