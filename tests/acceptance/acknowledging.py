"""Enqueue from one thread and then from several, and say when: `begin NAME` before, `ack NAME` after the commit.

Run by `test_durability` under strace. The second argument plants a fault: `unsynced` does not wait for the disk,
`early` says that it is done before it is.
"""

from __future__ import annotations

import os
import sys
import threading
from functools import partial

import lmdb

from fairlead import App, TenantDatabase

THREADS = 4
TIMES = 10


def say(what: str, name: str) -> None:
    os.write(1, f"{what} {name}\n".encode())


def enqueue(tenant: TenantDatabase, thread: int, planted: str) -> None:
    for time in range(TIMES):
        name = f"{thread}.{time}"
        say("begin", name)
        if planted == "early":
            say("ack", name)
        tenant.enqueue("mail", {"body": "x" * 5_000})
        if planted != "early":
            say("ack", name)


def main() -> None:
    url, planted = sys.argv[1:]
    if planted == "unsynced":
        lmdb.open = partial(lmdb.open, sync=False)  # type: ignore[assignment]
    app = App(url)
    tenant = app.tenant("shop", "alice")
    enqueue(tenant, 0, planted)
    threads = [threading.Thread(target=enqueue, args=(tenant, number, planted)) for number in range(1, THREADS + 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    app.close()


if __name__ == "__main__":
    main()
