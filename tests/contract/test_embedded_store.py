"""Opening and closing an embedded store, the refusals of its engine, and its use of the disk."""

from __future__ import annotations

import gc
import os
import pickle
import random
import resource
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import lmdb
import pytest

from fairlead.zones.engines import Database, StoreUnavailable, transact
from fairlead.zones.engines import open as open_database
from fairlead.zones.engines.api.errors import error_code
from fairlead.zones.engines.embedded import lmdb_files, stored_log
from fairlead.zones.engines.optimistic.reserved_keys import FORMAT_KEY, LOG_BEGIN
from tests.clocks import ManualClock
from tests.contract.conftest import code_of

ROOT = Path(__file__).parents[2]
DAY_US = 86_400_000_000


def opened(path: Path, clock: ManualClock | None = None) -> Database:
    return open_database(f"embedded:{path}", clock=clock or ManualClock(), random=random.Random(1))


def refused(path: Path) -> StoreUnavailable:
    """Return the error that opening raises; it has a remedy, and can be pickled."""
    with pytest.raises(StoreUnavailable) as caught:
        opened(path)
    assert caught.value.remedy
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    return caught.value


def put(db: Database, key: bytes, value: bytes) -> None:
    transact(db, lambda tr: tr.set(key, value))


def test_a_store_keeps_its_content_when_it_is_opened_again(tmp_path: Path) -> None:
    db = opened(tmp_path / "new" / "deeper")
    put(db, b"a", b"1")
    version = db.create_transaction().get_read_version().wait()
    db.close()
    db.close()
    db = opened(tmp_path / "new" / "deeper")
    assert db.create_transaction().get(b"a").value == b"1"
    assert db.create_transaction().get_read_version().wait() == version
    db.close()


def test_one_path_is_opened_once_and_closed_with_its_last_user(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "store")
    one, two = opened(tmp_path / "store"), opened(link)
    put(one, b"a", b"1")
    one.close()
    assert two.create_transaction().get(b"a").value == b"1"
    two.close()
    lmdb.open(str(tmp_path / "store")).close()  # LMDB refuses a store that is still open.


def test_a_database_that_is_dropped_closes_its_store(tmp_path: Path) -> None:
    db = opened(tmp_path)
    put(db, b"a", b"1")
    del db
    gc.collect()
    lmdb.open(str(tmp_path)).close()


def test_a_store_that_was_deleted_and_made_anew_is_another_store(tmp_path: Path) -> None:
    old = opened(tmp_path / "store")
    put(old, b"a", b"1")
    shutil.rmtree(tmp_path / "store")
    new = opened(tmp_path / "store")
    assert new.create_transaction().get(b"a").value is None
    put(new, b"b", b"1")
    old.close()
    assert new.create_transaction().get(b"b").value == b"1"
    new.close()


def test_two_processes_may_create_a_store_at_the_same_time(tmp_path: Path) -> None:
    script = (
        "import random, sys; from tests.clocks import WallClock; from fairlead.zones.engines import open, transact\n"
        "db = open('embedded:' + sys.argv[1], clock=WallClock(), random=random.Random())\n"
        "transact(db, lambda tr: tr.add(b'n', b'\\x01'))\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "store")]
    processes = [subprocess.Popen(command, cwd=ROOT) for _ in range(4)]
    assert [process.wait() for process in processes] == [0, 0, 0, 0]
    db = opened(tmp_path / "store")
    assert db.create_transaction().get(b"n").value == b"\x04"
    db.close()


def test_urls_that_name_no_store_are_refused() -> None:
    for url in ("", "memory", "memory:place", "embedded", "embedded:", "sqlite:here", "fdb"):
        with pytest.raises(ValueError, match="embedded:PATH"):
            open_database(url, clock=ManualClock(), random=random.Random(1))


def test_a_file_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    assert refused(tmp_path / "file").reason == "the path is a file"
    assert refused(tmp_path / "file" / "below").reason == "the path cannot be created"
    assert (tmp_path / "file").read_text() == "mine"


def test_the_store_of_another_program_is_refused_and_unchanged(tmp_path: Path) -> None:
    with lmdb.open(str(tmp_path)) as env, env.begin(write=True) as txn:
        txn.put(b"theirs", b"1")
    before = (tmp_path / "data.mdb").read_bytes()
    assert refused(tmp_path).reason == "the path holds another program's LMDB store"
    assert (tmp_path / "data.mdb").read_bytes() == before


def test_a_file_that_is_no_lmdb_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data.mdb").write_bytes(b"no lmdb" * 1_000)
    assert refused(tmp_path).reason == "the path holds no store of this kind"


def test_a_newer_format_is_refused_and_unchanged(tmp_path: Path) -> None:
    opened(tmp_path).close()
    with lmdb.open(str(tmp_path)) as env, env.begin(write=True) as txn:
        txn.put(FORMAT_KEY, b"2")
    before = (tmp_path / "data.mdb").read_bytes()
    error = refused(tmp_path)
    assert error.reason == "the store was written by a newer version"
    assert (error.fields["format"], error.fields["format_known"]) == (2, 1)
    assert (tmp_path / "data.mdb").read_bytes() == before


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="this system does not list a process's open files")
@pytest.mark.parametrize("content", [b"no lmdb" * 1_000, b""], ids=["not LMDB's", "another program's"])
def test_an_error_that_is_kept_does_not_keep_its_refused_store_open(tmp_path: Path, content: bytes) -> None:
    """An actor that waits until its disk is writable again must not prevent a remount."""
    with lmdb.open(str(tmp_path)) as env, env.begin(write=True) as txn:
        txn.put(b"theirs", b"1")
    if content:
        (tmp_path / "data.mdb").write_bytes(content)
    error = refused(tmp_path)
    links = [str(each.readlink()) for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]
    assert not [link for link in links if link.startswith(str(tmp_path))], error


def test_commits_are_synced_to_disk(tmp_path: Path) -> None:
    db = opened(tmp_path)
    flags = db._store.files._env.flags()  # type: ignore[attr-defined]
    assert flags["sync"]
    assert flags["metasync"]
    assert not flags["map_async"]
    db.close()


def test_a_forgotten_transaction_pins_pages_no_longer_than_its_window(tmp_path: Path, clock: ManualClock) -> None:
    db = opened(tmp_path, clock)
    put(db, b"a", b"1")
    forgotten = db.create_transaction()
    assert forgotten.get(b"a").value == b"1"
    clock.advance_us(6_500_000)
    for round_ in range(3):
        put(db, b"b", bytes([round_]) * 100_000)
    before = (tmp_path / "data.mdb").stat().st_size
    for round_ in range(30):
        put(db, b"b", bytes([round_]) * 100_000)
    assert (tmp_path / "data.mdb").stat().st_size == before
    assert code_of(forgotten.get_read_version()) == 1007
    db.close()


@pytest.mark.parametrize("end", ["commit", "cancel", "reset", "drop"])
def test_a_transaction_that_has_ended_pins_nothing(tmp_path: Path, end: str) -> None:
    db = opened(tmp_path)
    put(db, b"a", b"1")
    tr = db.create_transaction()
    assert tr.get(b"a").value == b"1"
    assert len(list(tr.snapshot.get_range(b"a", b"b"))) == 1
    tr.options.set_timeout(1_000)
    if end == "drop":
        gc.disable()  # The garbage collector must not be needed.
        del tr
    else:
        getattr(tr, end)()
    for round_ in range(3):
        put(db, b"b", bytes([round_]) * 100_000)
    before = (tmp_path / "data.mdb").stat().st_size
    for round_ in range(30):
        put(db, b"b", bytes([round_]) * 100_000)
    gc.enable()
    assert (tmp_path / "data.mdb").stat().st_size == before
    db.close()


def test_the_log_keeps_the_window_and_not_more(tmp_path: Path, clock: ManualClock) -> None:
    db = opened(tmp_path, clock)
    for _ in range(300):
        put(db, b"a", b"1")
        clock.advance_us(100_000)
    assert 50 <= len(logged(db)) <= 50 + 2 * 64
    db.close()


def logged(db: Database) -> list[bytes]:
    """Return the entries of the commit log."""
    with db._store.files._env.begin() as txn:  # type: ignore[attr-defined]
        cursor = txn.cursor()
        assert cursor.set_range(LOG_BEGIN)
        return [value for _, value in cursor.iternext()]


def test_the_log_keeps_the_window_and_not_more_after_a_commit_by_a_clock_a_day_ahead(
    tmp_path: Path, clock: ManualClock
) -> None:
    db = opened(tmp_path, clock)
    put(db, b"a", b"0")
    clock.advance_us(DAY_US)
    put(db, b"a", b"1")
    clock.advance_us(-DAY_US)
    late, in_time = db.create_transaction(), db.create_transaction()
    late.get(b"a").wait()
    for _ in range(300):
        put(db, b"a", b"1")
        clock.advance_us(100_000)
    assert 50 <= len(logged(db)) <= 50 + 2 * 64
    in_time.get(b"a").wait()
    for _ in range(40):
        put(db, b"b", b"1")
        clock.advance_us(100_000)
    for tr, code in ((late, 1007), (in_time, 0)):
        tr.set(b"c", b"")
        assert code_of(tr.commit()) == code
    db.close()


def test_the_log_is_bounded_while_the_clock_stands_still(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_log, "LOG_BYTES_MAX", 10_000)
    db = opened(tmp_path, clock)
    late = db.create_transaction()
    late.get(b"a").wait()
    for _ in range(500):
        transact(db, lambda tr: [tr.set(bytes([number]), b"") for number in range(1, 50)])
    entries = logged(db)
    in_log_bytes_max = 10_000 + 2 * stored_log.PRUNE_EVERY * len(entries[0])
    assert sum(map(len, entries)) <= in_log_bytes_max
    assert code_of(written(late).commit()) == 1007
    assert code_of(written(db.create_transaction(), reads=b"a").commit()) == 0
    db.close()


def test_a_log_is_pruned_no_further_than_its_bound_demands(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_log, "LOG_BYTES_MAX", 10_000)
    db = opened(tmp_path, clock)
    for _ in range(500):
        transact(db, lambda tr: [tr.set(bytes([number]), b"") for number in range(1, 50)])
    assert sum(map(len, logged(db))) >= 10_000 - 1_000
    db.close()


def written(tr: Any, *, reads: bytes | None = None) -> Any:
    if reads is not None:
        tr.get(reads).wait()
    tr.set(b"written", b"")
    return tr


def delete(store: Path) -> None:
    shutil.rmtree(store)


def move_away(store: Path) -> None:
    store.rename(store.with_name("moved"))


def replace(store: Path) -> None:
    move_away(store)
    opened(store).close()


@pytest.mark.parametrize("remove", [delete, move_away, replace])
def test_nothing_is_committed_to_a_store_that_was_deleted_or_replaced(
    tmp_path: Path, remove: Callable[[Path], None]
) -> None:
    """Such a commit would be reported as durable, but no other process would see it."""
    db = opened(tmp_path / "store")
    put(db, b"a", b"1")
    remove(tmp_path / "store")
    for _ in range(2):
        with pytest.raises(StoreUnavailable) as caught:
            put(db, b"b", b"1")
        assert caught.value.reason == "the store was deleted or replaced"
        assert caught.value.remedy
    db.close()
    anew = opened(tmp_path / "store")
    put(anew, b"c", b"1")
    assert anew.create_transaction().get(b"b").value is None
    anew.close()


def use_up_files(left: int) -> list[int]:
    """Open files until only `left` more may be opened; return the descriptors."""
    files = []
    with suppress(OSError):
        while True:
            files.append(os.open(os.devnull, os.O_RDONLY))
    for _ in range(left):
        os.close(files.pop())
    return files


@pytest.mark.parametrize("left", range(5))
def test_too_many_open_files_are_not_reported_as_a_failing_disk(tmp_path: Path, left: int) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(list(Path("/proc/self/fd").iterdir())) + 20, limits[1]))
    files = use_up_files(left)
    try:
        error = refused(tmp_path / "store")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for file in files:
            os.close(file)
    assert error.reason == "too many files are open"
    opened(tmp_path / "store").close()


def test_too_little_address_space_is_not_reported_as_a_failing_disk(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_AS)
    mapped_bytes = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped_bytes + lmdb_files.MAP_BYTES // 2, limits[1]))
    try:
        error = refused(tmp_path / "store")
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
    assert error.reason == "there is no free memory or address space"
    opened(tmp_path / "store").close()


FULL_DISK = [sys.executable, "-m", "tests.contract.full_disk"]


def may_mount(script: str) -> bool:
    """Return whether this user may mount a file system in a new namespace, as `script` does."""
    return not subprocess.run(["unshare", "-Urm", "sh", "-c", script], check=False, capture_output=True).returncode


def test_a_full_disk_fails_the_commit_and_loses_nothing(tmp_path: Path) -> None:
    mount = f"mount -t tmpfs -o size=4m tmpfs {tmp_path}"
    if not may_mount(mount):
        pytest.skip("this user may not mount anything; see the next test for a limit on file sizes instead")
    command = ["unshare", "-Urm", "sh", "-c", f'{mount} && exec "$@"', "sh", *FULL_DISK, str(tmp_path)]
    run = subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT)
    assert "all is there" in run.stdout, run.stderr


@pytest.mark.parametrize("free_kb", [64, 128, 240, 300])
def test_a_disk_without_space_for_a_new_store_is_an_error_and_no_signal(tmp_path: Path, free_kb: int) -> None:
    """LMDB maps its lock file without writing it. Without all blocks of the file, SIGBUS ends the process."""
    mount = f"mount -t tmpfs -o size={free_kb}k tmpfs {tmp_path}"
    if not may_mount(mount):
        pytest.skip("this user may not mount anything")
    script = (
        "import random, sys; from tests.clocks import WallClock\n"
        "from fairlead.zones.engines import open, StoreUnavailable, transact\n"
        "try:\n"
        "    db = open('embedded:' + sys.argv[1], clock=WallClock(), random=random.Random())\n"
        "    transact(db, lambda tr: tr.set(b'a', bytes(50_000)))\n"
        "except StoreUnavailable as error:\n"
        "    print(error.reason)\n"
    )
    command = ["unshare", "-Urm", "sh", "-c", f'{mount} && exec "$@"', "sh", sys.executable, "-c", script]
    run = subprocess.run([*command, str(tmp_path / "store")], check=False, capture_output=True, text=True, cwd=ROOT)
    assert (run.returncode, run.stdout) == (0, "the disk is full\n"), run.stderr


def test_a_new_lock_file_has_all_its_blocks(tmp_path: Path) -> None:
    opened(tmp_path).close()
    found = (tmp_path / "lock.mdb").stat()
    assert found.st_blocks * 512 >= found.st_size > 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.mdb", "lock.mdb"]


def test_a_file_that_may_not_grow_further_is_treated_like_a_full_disk(tmp_path: Path) -> None:
    limit = (4 << 20, resource.getrlimit(resource.RLIMIT_FSIZE)[1])
    run = subprocess.run(
        [*FULL_DISK, str(tmp_path)],
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit),
    )
    assert "all is there" in run.stdout, run.stderr


def test_a_read_only_place_is_refused(tmp_path: Path) -> None:
    opened(tmp_path / "store").close()
    script = (
        "import random, sys; from tests.clocks import WallClock\n"
        "from fairlead.zones.engines import open, StoreUnavailable\n"
        "for path in sys.argv[1:]:\n"
        "    try:\n"
        "        open('embedded:' + path, clock=WallClock(), random=random.Random())\n"
        "    except StoreUnavailable as error:\n"
        "        print(error.reason)\n"
    )
    mount = f"mount --bind -o ro {tmp_path} {tmp_path} && mount -o remount,bind,ro {tmp_path}"
    if not may_mount(mount):
        pytest.skip("this user may not mount anything, not even in a namespace")
    command = ["unshare", "-Urm", "sh", "-c", f'{mount} && exec "$@"', "sh", sys.executable, "-c", script]
    run = subprocess.run(
        [*command, str(tmp_path / "store"), str(tmp_path / "new")],
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert run.stdout.splitlines() == ["the path is read-only", "the path is read-only"], run.stderr


def test_a_failed_write_of_the_root_is_an_unknown_result_and_the_store_stays_usable(tmp_path: Path) -> None:
    """LMDB disables an environment after a failed write of the root page. The engine opens a new one."""
    db = opened(tmp_path)
    put(db, b"a", b"1")
    reader = db.create_transaction()
    assert reader.get(b"a").value == b"1"
    break_root(tmp_path)
    tr = db.create_transaction()
    tr.set(b"b", b"1")
    assert code_of(tr.commit()) == 1021
    with pytest.raises(db.errors) as caught:
        _ = reader.get(b"a").value
    assert error_code(caught.value) == 1007
    put(db, b"c", b"1")
    found = [pair.key for pair in db.create_transaction().get_range(None, None)]
    assert found in ([b"a", b"c"], [b"a", b"b", b"c"])
    db.close()


def break_root(store: Path) -> None:
    """Make LMDB's writes of its root fail: replace the O_DSYNC descriptor by a read-only one."""
    for place in list(Path("/proc/self/fd").iterdir()):
        fd = int(place.name)
        try:
            target = str(place.readlink())
        except FileNotFoundError:
            continue
        flags = int(Path(f"/proc/self/fdinfo/{fd}").read_text().split("flags:")[1].split()[0], 8)
        if target == str(store / "data.mdb") and flags & os.O_DSYNC:
            reading = os.open(target, os.O_RDONLY)
            os.dup2(reading, fd)
            os.close(reading)
            return
    raise AssertionError("LMDB has no descriptor for its root")


def test_a_reader_without_a_free_slot_fails_with_a_retryable_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lmdb_files, "READERS_MAX", 4)
    db = opened(tmp_path)
    readers = [db.create_transaction() for _ in range(5)]
    assert [code_of(reader.get_read_version()) for reader in readers] == [0, 0, 0, 0, 1037]
    readers[0].cancel()
    readers[4].reset()
    assert code_of(readers[4].get_read_version()) == 0
    db.close()


def test_readers_on_other_threads_survive_a_growing_map(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lmdb_files, "MAP_BYTES", 1 << 18)
    db = opened(tmp_path)
    stop = threading.Event()
    outcomes: list[set[int]] = []

    def read() -> None:
        seen = set()
        while not stop.is_set():
            tr = db.create_transaction()
            for number in range(20):
                future = tr.get(str(number).encode())
                seen.add(code_of(future))
                rows = tr.get_range(b"", b"\xff", limit=5)
                try:
                    list(rows)
                except db.errors as error:
                    seen.add(error_code(error))
        outcomes.append(seen)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(100):
        put(db, str(number).encode(), bytes(50_000))
    stop.set()
    for thread in threads:
        thread.join()
    assert len(outcomes) == 3
    assert set().union(*outcomes) <= {0, 1007}
    db.close()
