"""Configurations of two shards, of one engine or of two."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fairlead import Config
from tests.acceptance.fleets import ZONES, config
from tests.foundationdb_server import FoundationServer, needs_server

PAIRS = [
    "embedded to embedded",
    pytest.param("embedded to foundationdb", marks=needs_server),
    pytest.param("foundationdb to foundationdb", marks=needs_server),
]


@contextmanager
def pair_of_shards(engines: str, directory: Path) -> Iterator[Config]:
    """Yield a configuration of the shards a and b, on engines that are one of `PAIRS`."""
    embedded = config(directory, shards=("a", "b"))
    if engines == "embedded to embedded":
        yield embedded
        return
    with FoundationServer(directory / "one") as one:
        if engines == "embedded to foundationdb":
            yield Config(shards={"a": embedded.shards["a"], "b": one.url}, consumer=embedded.consumer, zones=ZONES)
            return
        with FoundationServer(directory / "two") as two:
            yield Config(shards={"a": one.url, "b": two.url}, consumer=embedded.consumer, zones=ZONES)
