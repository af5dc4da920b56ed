"""Stores are opened at their first use, kept, and closed."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import pytest

from fairlead import App, NoShards, ShardRefused, StoreMissing, StoreUnavailable, UnknownShard
from fairlead.shards import Shards
from fairlead.testing import ManualClock
from fairlead.zones import engines
from fairlead.zones.keyspace import META_KEY
from fairlead.zones.layout import Tenant
from fairlead.zones.records import PlacementRecord
from fairlead.zones.settings import ZoneSettings
from fairlead.zones.shard import Shard, open_shard

PATIENCE_S = 10


def shards_of(urls: dict[str, str], *, part_count: int = 2) -> Shards:
    return Shards(urls, clock=ManualClock(), random=Random(1), settings=ZoneSettings(), part_count=part_count)


def test_nothing_is_opened_before_it_is_used(tmp_path: Path) -> None:
    shards = shards_of({"good": "memory:", "unused": f"embedded:{tmp_path / 'missing'}"})
    assert list(shards) == ["good", "unused"]
    assert shards["good"].name == "good"
    assert not (tmp_path / "missing").exists()


def test_a_shard_is_opened_once() -> None:
    shards = shards_of({"main": "memory:"})
    assert shards["main"] is shards["main"]


def test_a_tenant_has_the_same_home_in_every_process() -> None:
    urls = {"eu": "memory:", "us": "memory:"}
    one, other = shards_of(urls), shards_of(dict(reversed(urls.items())))
    tenants = [Tenant("shop", f"user {number}") for number in range(50)]
    assert [one.home(tenant).name for tenant in tenants] == [other.home(tenant).name for tenant in tenants]
    assert {one.home(tenant).name for tenant in tenants} == {"eu", "us"}


def embedded(directory: Path, *names: str) -> dict[str, str]:
    return {name: f"embedded:{directory / name}" for name in names}


def homes(shards: Shards) -> list[str]:
    return [shards.home(Tenant("shop", f"user {number}")).name for number in range(50)]


@pytest.mark.parametrize("first", ["main", "us2"])
def test_a_store_that_was_made_while_another_path_was_wrong_is_refused_beside_it(tmp_path: Path, first: str) -> None:
    """Before, the two shards disagreed where a tenant lives, and the tenant had a home on each."""
    began = shards_of(embedded(tmp_path, "main"))
    assert began["main"].made
    began.close()
    mistyped = shards_of({**embedded(tmp_path, "us2"), "main": f"embedded:{tmp_path / 'mian'}"})
    assert homes(mistyped)
    mistyped.close()
    shards = shards_of(embedded(tmp_path, "main", "us2"))
    other = {"main": "us2", "us2": "main"}[first]
    assert shards[first].name == first
    with pytest.raises(ShardRefused, match=r"and the others state .*: the one that was made later"):
        shards[other]
    shards.close()


def test_the_only_shard_keeps_its_stored_name_once_a_second_one_is_added(tmp_path: Path) -> None:
    began = shards_of({"main": f"embedded:{tmp_path / 'data'}"})
    assert began["main"].made
    began.close()
    grown = shards_of({"eu": f"embedded:{tmp_path / 'data'}", "us2": f"embedded:{tmp_path / 'us2'}"})
    with pytest.raises(ShardRefused, match="its application calls it main: name it so"):
        grown["eu"]


@pytest.mark.parametrize("last", [0, 1, 2])
def test_tenants_keep_their_homes_when_a_shard_is_added(tmp_path: Path, last: int) -> None:
    """Before, a third of them looked for their data on the new shard."""
    began = shards_of(embedded(tmp_path, "eu", "us"))
    before = homes(began)
    began.close()
    names = ["eu", "us"]
    names.insert(last, "asia")
    grown = shards_of(embedded(tmp_path, *names))
    assert grown["asia"].layout.placement == PlacementRecord("asia", ("eu", "us"))
    assert homes(grown) == before
    grown.close()


def test_tenants_keep_their_homes_in_a_process_that_has_opened_no_shard_yet(tmp_path: Path) -> None:
    began = shards_of(embedded(tmp_path, "eu", "us"))
    before = homes(began)
    began.close()
    for number, name in enumerate(before):
        grown = shards_of(embedded(tmp_path, "asia", "eu", "us"))
        assert grown.home(Tenant("shop", f"user {number}")).name == name
        grown.close()


def test_an_application_that_leaves_out_a_shard_is_refused_before_it_looks_for_a_tenant(tmp_path: Path) -> None:
    """Before, it looked for tenants of that shard on the others, and found nothing."""
    began = shards_of(embedded(tmp_path, "eu", "us"))
    assert set(homes(began)) == {"eu", "us"}
    began.close()
    for names in (("eu",), ("eu", "asia")):
        shards = shards_of(embedded(tmp_path, *names))
        with pytest.raises(ShardRefused, match="began with the shards eu, us: name them all"):
            shards["eu"]


def test_two_shards_whose_stores_are_exchanged_are_refused(tmp_path: Path) -> None:
    urls = embedded(tmp_path, "eu", "us")
    began = shards_of(urls)
    homes(began)
    began.close()
    with pytest.raises(ShardRefused, match="calls it us: name it so"):
        shards_of({"eu": urls["us"], "us": urls["eu"]})["eu"]


def test_the_only_shard_of_an_application_may_get_another_name(tmp_path: Path) -> None:
    url = f"embedded:{tmp_path / 'data'}"
    began = shards_of({"main": url})
    began["main"].db.close()
    assert shards_of({"eu": url}).home(Tenant("shop", "alice")).name == "eu"


def test_a_tool_that_is_pointed_at_one_store_of_several_reads_it(tmp_path: Path) -> None:
    urls = embedded(tmp_path, "eu", "us")
    began = shards_of(urls)
    homes(began)
    began.close()
    tool = shards_of({"main": urls["us"]})
    tool.must_exist = True
    assert tool["main"].layout.placement == PlacementRecord("us", ("eu", "us"))
    tool.close()


def test_a_tool_tells_no_store_of_which_application_it_is(tmp_path: Path) -> None:
    """A store of an earlier version knows nothing about other shards; its application tells it."""
    urls = embedded(tmp_path, "eu", "us")
    db = engines.open(urls["us"], clock=ManualClock(), random=Random(1))
    open_shard("us", db, clock=ManualClock(), random=Random(1))
    tool = shards_of({"main": urls["us"]})
    tool.must_exist = True
    assert tool["main"].layout.placement is None
    application = shards_of(urls)
    assert application["us"].layout.placement == PlacementRecord("us", ("eu", "us"))
    for each in (tool, application):
        each.close()
    db.close()


def test_a_name_that_is_none_of_the_shards_is_refused_with_those_there_are() -> None:
    with pytest.raises(UnknownShard) as caught:
        shards_of({"eu": "memory:", "us": "memory:"})["asia"]
    assert caught.value.fields == {"shard": "asia", "known": ["eu", "us"]}


def test_without_shards_no_tenant_has_a_home() -> None:
    with pytest.raises(NoShards):
        shards_of({}).home(Tenant("shop", "alice"))


def test_a_new_store_is_logged_once_with_its_absolute_path(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Before, a wrong path silently made a second store, and no fleet served its items."""
    urls = {"main": f"embedded:{tmp_path / 'data'}"}
    for _ in range(2):
        shards = shards_of(urls)
        assert shards["main"].name == "main"
        shards.close()
    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [
        ("WARNING", f"made a new store at {tmp_path / 'data'}, for shard main")
    ]


def test_a_new_store_in_memory_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    assert shards_of({"main": "memory:"})["main"].name == "main"
    assert not caplog.records


def test_a_reader_does_not_make_a_missing_store(tmp_path: Path) -> None:
    shards = shards_of({"main": f"embedded:{tmp_path / 'data'}"})
    shards.must_exist = True
    with pytest.raises(StoreMissing):
        shards["main"]
    assert list(tmp_path.iterdir()) == []


def test_a_reader_does_not_change_a_directory_that_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "sea.jpg").write_text("mine")
    shards = shards_of({"main": f"embedded:{tmp_path}"})
    shards.must_exist = True
    with pytest.raises(StoreMissing):
        shards["main"]
    assert [path.name for path in tmp_path.iterdir()] == ["sea.jpg"]


def test_a_reader_makes_no_shard_in_an_empty_store(tmp_path: Path) -> None:
    url = f"embedded:{tmp_path / 'data'}"
    engines.open(url, clock=ManualClock(), random=Random(1)).close()
    shards = shards_of({"main": url})
    shards.must_exist = True
    with pytest.raises(StoreMissing):
        shards["main"]
    shards.must_exist = False
    shards["main"].db.close()


def test_a_shard_keeps_its_parts_and_its_id_when_it_is_opened_again(tmp_path: Path) -> None:
    url = f"embedded:{tmp_path / 'data'}"
    first = shards_of({"main": url}, part_count=3)
    made = first["main"].layout
    first.close()
    again = shards_of({"main": url}, part_count=9)["main"]
    assert (again.layout.part_count, again.layout.shard_id) == (3, made.shard_id)
    again.db.close()


def test_a_closed_application_opens_again_when_it_is_used(tmp_path: Path) -> None:
    app = App(f"embedded:{tmp_path / 'data'}")
    app.tenant("shop", "alice").enqueue("mail")
    app.close()
    assert app.tenant("shop", "alice").count() == {"mail": 1}
    app.close()


def test_a_path_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("mine")
    with pytest.raises(StoreUnavailable, match="is a file"):
        shards_of({"main": f"embedded:{tmp_path / 'data'}"})["main"]
    assert (tmp_path / "data").read_text() == "mine"


def test_a_shard_of_a_newer_version_is_refused_and_not_changed(tmp_path: Path) -> None:
    url = f"embedded:{tmp_path / 'data'}"
    db = engines.open(url, clock=ManualClock(), random=Random(1))
    engines.transact(db, lambda tr: tr.set(META_KEY, b"\x02new"))
    with pytest.raises(ShardRefused, match="upgrade"):
        shards_of({"main": url})["main"]
    assert engines.transact(db, lambda tr: tr.get(META_KEY).value) == b"\x02new"
    db.close()


def test_a_process_that_is_forked_while_a_thread_opens_a_store_opens_it_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, the child waited for ever for a lock, whose holder was a thread of the parent."""
    opens, goes_on = threading.Event(), threading.Event()
    parent = os.getpid()

    def slowly(*args: Any, **options: Any) -> Shard:
        if os.getpid() == parent:
            opens.set()
            assert goes_on.wait(2 * PATIENCE_S)
        return open_shard(*args, **options)

    monkeypatch.setattr("fairlead.shards.open_shard", slowly)
    app = App(f"embedded:{tmp_path / 'data'}")
    alice = app.tenant("shop", "alice")
    with ThreadPoolExecutor(1) as pool:
        opening = pool.submit(alice.enqueue, "mail")
        assert opens.wait(PATIENCE_S)
        child = os.fork()
        if not child:
            signal.alarm(PATIENCE_S)  # Without a handler, this ends it.
            try:
                alice.enqueue("mail")
                os._exit(0)
            finally:
                os._exit(1)
        status = os.waitpid(child, 0)[1]
        goes_on.set()
        opening.result(PATIENCE_S)
    assert status == 0
    assert alice.count() == {"mail": 2}
    app.close()
