"""The stories of a stage are told over the memory engine, and over FoundationDB where a cluster is named."""

from __future__ import annotations

from functools import partial

import pytest

from fairlead.zones.engines import Database
from tests.actors.stage import Stage
from tests.actors.staged_watches import StagedDatabase
from tests.rooted import on_cluster

STAGED = "engine_of_the_stage"
# In the stories of a listener. FoundationDB has none: watches tell its scanners, before the test's ear says anything.
EAR = "ear"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tell what has a stage over both engines; what has an ear too, over memory alone."""
    if "stage" in metafunc.fixturenames:
        cluster = pytest.param("foundationdb", marks=pytest.mark.foundationdb)
        engines = ["memory"] if EAR in metafunc.fixturenames else ["memory", cluster]
        metafunc.fixturenames.append(STAGED)
        metafunc.parametrize(STAGED, engines, indirect=True)


@pytest.fixture(autouse=True)
def engine_of_the_stage(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a stage open its stores on the engine."""
    if getattr(request, "param", "memory") == "memory":
        return

    def open_engine(stage: Stage) -> Database:
        staged = partial(StagedDatabase, host=stage.host)
        return on_cluster(clock=stage.clock, random=stage.random, rooted=staged)

    monkeypatch.setattr(Stage, "open_engine", open_engine)
