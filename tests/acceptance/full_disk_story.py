"""Fill the disk under a running fleet, and empty it again. Run by `test_outage` in a mount namespace of its own."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from fairlead import App, Config, new_item
from fairlead.zones.engines import StoreUnavailable
from tests.acceptance.fleets import SHOP, config, eventually, machine, opened, written
from tests.acceptance.loads import TENANTS, assert_all_done, assert_nothing_left, depth
from tests.acceptance.shop import payload

DISK_MB = 24
BALLAST_MB = 12
FULL_S = 5.0  # More than two leases.
PAD_BYTES = 4_000
BATCH = 20


def enqueue_until_full(app: App, enqueued: dict[int, str], *, until: float | None = None) -> int:
    """Enqueue until the disk is full, or until a time, trying again and again; return how often it was refused."""
    refused = 0
    while until is None or time.monotonic() < until:
        first = len(enqueued)
        kinds = {number: "transactional" if number % 2 else "plain" for number in range(first, first + BATCH)}
        items = [new_item(kind, payload(number, pad=bytes(PAD_BYTES))) for number, kind in kinds.items()]
        try:
            app.tenant("shop", f"user {first // BATCH % TENANTS}").enqueue_many(items)
        except StoreUnavailable as error:
            if error.reason != "the disk is full" or "Free some space" not in error.remedy:
                raise
            refused += 1
            if until is None:
                return refused
            time.sleep(0.1)
        else:
            enqueued.update(kinds)
    return refused


def tell(place: Path, chosen: Config, runtime: str) -> None:
    """Run the story on a disk that has been mounted."""
    ballast = place / "disk" / "ballast"
    ballast.write_bytes(bytes(BALLAST_MB << 20))
    written(chosen, place)
    log = place / "log"
    enqueued: dict[int, str] = {}
    with opened(chosen) as app, machine(place) as on:
        with log.open("w") as file:
            process = on.run("run", SHOP, "--config", "fairlead.toml", "--runtime", runtime, log=file)
        eventually(lambda: "running" in log.read_text(), otherwise=log.read_text)
        enqueue_until_full(app, enqueued)
        refused = enqueue_until_full(app, enqueued, until=time.monotonic() + FULL_S)
        left = depth(app)
        ballast.unlink()
        assert_all_done(app, enqueued)
        assert_nothing_left(app)
        assert process.poll() is None, "the fleet lived through it"
        said = log.read_text()  # before the machine is killed, of which Ray has much to say
    kinds = Counter(line.partition(": ")[0].split(" ", 2)[-1] for line in said.splitlines())
    sys.stdout.write(f"{len(enqueued)} items, refused {refused} times, {left} left when there was space; {kinds}\n")
    assert "Traceback" not in said, said
    assert refused > 5, "the disk was full all the while"
    assert len(said.splitlines()) < 20, f"said again and again: {said}"


def main() -> None:
    place, runtime = Path(sys.argv[1]), sys.argv[2]
    (place / "disk").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "none", str(place / "disk")], check=True)
    tell(place, config(place / "disk"), runtime)


if __name__ == "__main__":
    main()
