"""The stores of a command: a new one for each measurement; on a cluster, no other store is cleared."""

from __future__ import annotations

import os
from argparse import ArgumentTypeError
from pathlib import Path
from random import Random

import pytest

from bench import stores
from bench.harness import store_url
from bench.stores import StoreInUse, Stores
from fairlead.zones import engines
from fairlead.zones.engines import transact
from fairlead.zones.keyspace import META_KEY, ROOT_RANGE
from tests.clocks import ManualClock
from tests.rooted import cluster_url


def test_an_embedded_store_is_a_directory_that_does_not_exist_yet(tmp_path: Path) -> None:
    store = Stores(tmp_path).new("drain")
    assert not store.exists()
    assert store_url(store) == f"embedded:{tmp_path}/drain"


@pytest.mark.parametrize("url", ["embedded:here", "fdb:", "fdb:no-such-file", "here"])
def test_only_an_existing_cluster_file_is_accepted(url: str) -> None:
    with pytest.raises(ArgumentTypeError):
        stores.cluster_file_of(url)


def test_a_bare_commit_leaves_nothing_behind() -> None:
    db = engines.open("memory:", clock=ManualClock(), random=Random(1))
    assert stores.commit_ms(db) > 0
    assert list(db.create_transaction().get_range(None, None)) == []


@pytest.mark.foundationdb
def test_each_store_on_a_cluster_is_empty_and_named_by_a_copy_of_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster_url(monkeypatch)
    cluster_file = Path(os.environ["FDB_CLUSTER_FILE"])
    with stores.prepared_stores(cluster_file) as made:
        first = made.new("first")
        assert store_url(first) == f"fdb:{first}"
        assert first.read_text() == cluster_file.read_text()
        db = stores._opened(first)
        transact(db, lambda tr: tr.set(META_KEY, b"a store"))
        made.new("second")
        assert transact(db, lambda tr: list(tr.get_range(*ROOT_RANGE))) == []


@pytest.mark.foundationdb
def test_a_store_that_existed_before_is_not_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster_url(monkeypatch)
    cluster_file = Path(os.environ["FDB_CLUSTER_FILE"])
    db = stores._opened(cluster_file)
    transact(db, lambda tr: tr.set(META_KEY, b"somebody's"))
    with pytest.raises(StoreInUse, match="holds a store"), stores.prepared_stores(cluster_file):
        pass
    assert transact(db, lambda tr: tr.get(META_KEY).value) == b"somebody's"
