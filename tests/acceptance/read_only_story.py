"""Make the disk of a running fleet read-only, and writable again. Run by `test_outage` in a mount namespace of its own.

The kernel refuses to make a file system read-only in which a file is open for writing, so what is read-only is the
path: who has the store open goes on, and who opens it, as every restarted process does, is refused.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

from fairlead import Config
from tests.acceptance.fleets import SHOP, Machine, config, eventually, machine, opened, written
from tests.acceptance.loads import Load, assert_all_done, assert_nothing_left

READ_ONLY_S = 2.5  # More than a lease, and time for each actor to try to come back.
EXIT_STORE_UNUSABLE = 3


def actors_of(on: Machine) -> list[int]:
    """Return the processes of the fleet's actors that have opened a store."""
    names = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in on.pids()}
    return [pid for pid, name in names.items() if name.startswith((b"ray::Worker", b"ray::Manager", b"ray::Scanner"))]


def mount(*arguments: str | Path) -> None:
    subprocess.run(["mount", *map(str, arguments)], check=True)


def unmounted(disk: Path) -> bool:
    """Take the read-only mount away; not while an actor is just trying to open its store there."""
    return not subprocess.run(["umount", str(disk)], capture_output=True, check=False).returncode


def tell(place: Path, chosen: Config, runtime: str) -> None:
    """Run the story on a disk that has been mounted."""
    disk = place / "disk"
    written(chosen, place)
    log = place / "log"
    with opened(chosen) as app, machine(place) as on:
        with log.open("w") as file:
            process = on.run("run", SHOP, "--config", "fairlead.toml", "--runtime", runtime, log=file)
        eventually(lambda: "running" in log.read_text(), otherwise=log.read_text)
        with Load(app, per_s=100) as load:
            eventually(lambda: len(load.enqueued) >= 100)
            remounted = subprocess.run(["mount", "-o", "remount,ro", str(disk)], capture_output=True, check=False)
            assert remounted.returncode, "the kernel lets nobody do that to a store that is open"
            mount("--bind", disk, disk)
            mount("-o", "remount,bind,ro", disk)
            killed = actors_of(on)
            for pid in killed:
                os.kill(pid, signal.SIGKILL)
            enqueue = on.run(
                "enqueue", "plain", '{"number": 0}', "--tenant", "shop", "user 0", "--config", "fairlead.toml"
            )
            _, refused = enqueue.communicate(timeout=60)
            assert enqueue.returncode == EXIT_STORE_UNUSABLE, refused
            assert "the path is read-only" in refused, refused
            assert "Do: Make it writable" in refused, refused
            time.sleep(READ_ONLY_S)
            eventually(partial(unmounted, disk))
        assert_all_done(app, load.enqueued)
        assert_nothing_left(app)
        assert process.poll() is None, "the fleet lived through it"
    sys.stdout.write(f"{len(load.enqueued)} items, {len(killed)} actors restarted while the path was read-only\n")
    assert len(killed) == (0 if runtime == "threads" else 4)


def main() -> None:
    place, runtime = Path(sys.argv[1]), sys.argv[2]
    (place / "disk").mkdir()
    mount("-t", "tmpfs", "-o", "size=64m", "none", place / "disk")
    tell(place, config(place / "disk"), runtime)


if __name__ == "__main__":
    main()
