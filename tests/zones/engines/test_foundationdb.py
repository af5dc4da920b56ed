"""What can be said of the FoundationDB engine without a cluster."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clocks import ManualClock
from zones.engines import StoreUnavailable, StreamingMode
from zones.engines import open as open_database
from zones.engines.errors import TRANSACTION_TIMED_OUT


def test_other_engines_do_not_load_the_binding() -> None:
    script = (
        "import sys, random; from tests.clocks import ManualClock; from zones.engines import open\n"
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
    from zones.engines.options import WITHOUT_EFFECT

    assert set(options.TransactionOption) >= WITHOUT_EFFECT


def test_a_missing_client_library_is_named_with_the_package_that_brings_it() -> None:
    from zones.engines import foundationdb

    if foundationdb._client_library_found():
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
    from zones.engines import foundationdb

    cluster_file = tmp_path / "fdb.cluster"
    cluster_file.write_text("nobody:here@127.0.0.1:1\n")
    foundationdb._load_client()
    tr = foundationdb._connect(str(cluster_file)).create_transaction()
    with pytest.raises(pytest.importorskip("fdb").FDBError) as caught:
        tr.get(b"key").wait()
    assert caught.value.code == TRANSACTION_TIMED_OUT


@pytest.mark.foundationdb
def test_a_cluster_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable) as caught:
        open_database(f"fdb:{tmp_path / 'missing'}", clock=ManualClock(), random=random.Random(1))
    assert caught.value.reason == "the cluster file cannot be read"
