"""What tests of workflows run on: memory, and two key spaces of a FoundationDB cluster if one is named."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.rooted import RootedDatabase, new_root
from tests.workflows import application


@pytest.fixture(params=["memory", pytest.param("foundationdb", marks=pytest.mark.foundationdb)])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """Let `two_shards` use an engine."""
    if request.param == "memory":
        yield "memory"
        return
    from fairlead.zones.engines.foundationdb import engine

    files = {name: shutil.copy(os.environ["FDB_CLUSTER_FILE"], tmp_path / f"{name}.cluster") for name in ("a", "b")}
    urls = {name: f"fdb:{file}" for name, file in files.items()}
    opened: list[RootedDatabase] = []
    open_cluster = engine.open_cluster

    def open_below(url: str, cluster_file: str) -> Any:
        opened.append(RootedDatabase(open_cluster(url, cluster_file), new_root()))
        return opened[-1]

    monkeypatch.setattr(engine, "open_cluster", open_below)
    monkeypatch.setattr(application, "urls", urls)
    yield "foundationdb"
    for each in opened:
        each.close()
