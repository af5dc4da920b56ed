"""Watching a shard's parts: how an idle scanner learns of work if the engine tells of commits by watches alone.

Each part has a key that changes when a pointer of the part is made or woken
(`fairlead.zones.top_level.pointers.wake_scanners`). A scan that finds nothing in a part watches its key from the very
version that it has read. Until the key changes, another scan of the part could only find pointers that have vested by
time. So only those of sixteen parts are read again in which something has changed, or may have vested. A watch may be
lost, so each part is read now and then anyway, and watched anew once a minute.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from fairlead.zones.engines import Transaction
from fairlead.zones.engines.api.lost_watch import watch_error
from fairlead.zones.keyspace import PartKeys
from fairlead.zones.probes import probe

Watch = tuple[PartKeys, Any]  # A part, and the engine's future.
# A part whose watch the engine has dropped or refused is read this often instead. Any scan also reads the parts that
# were not read for so long: a watch may be lost without an error.
LOOK_US = 1_000_000
WATCH_US_MAX = 60_000_000  # The age at which a scan replaces a watch. For sixteen that is a request in four seconds.


class PartWatch:
    """The watches of one scanner on one shard, and when each part must be scanned again.

    Args:
      lock: guards this object; no argument below is called under it.
      due_us: returns by when a part must be scanned that has changed just now.
      wake: called after a change, on a thread of the engine; it must not wait.
      errors: what a future of the engine raises.
    """

    def __init__(
        self,
        lock: AbstractContextManager[Any],
        parts: Sequence[PartKeys],
        *,
        due_us: Callable[[PartKeys], int],
        wake: Callable[[], None],
        errors: tuple[type[Exception], ...],
    ) -> None:
        self._lock = lock
        self._parts = parts
        self._due_of = due_us
        self._wake = wake
        self._errors = errors
        self._due_us = dict.fromkeys((part.part for part in parts), 0)
        self._looked_us = dict.fromkeys(self._due_us, 0)
        self._watches: dict[int, Any] = {}
        self._watched_us: dict[int, int] = {}  # since when
        self._number = 0  # of what has happened
        self._changed_at = dict.fromkeys(self._due_us, 0)  # the number of a part's last change, known or suspected
        self._lost: Exception | None = None

    @property
    def next_due_us(self) -> int:
        """By when a part must be scanned."""
        return min(self._due_us.values())

    def is_due(self, now_us: int) -> bool:
        """Whether a part must be scanned by now. After the clock was set back all parts must."""
        return now_us >= self.next_due_us or now_us < max(self._looked_us.values())

    def due(self, now_us: int) -> list[PartKeys]:
        """Return the parts to scan now: none, if none must be scanned by now."""
        if not self.is_due(now_us):
            return []
        return [
            part
            for part in self._parts
            if self._due_us[part.part] <= now_us or not 0 <= now_us - self._looked_us[part.part] < LOOK_US
        ]

    def is_watched(self, part: PartKeys) -> bool:
        """Whether a part has a watch without a change: its first entry tells whether anything has vested."""
        return part.part in self._watches

    def lost(self) -> Exception | None:
        """Return the error by which a watch was lost since the last call, if one was."""
        with self._lock:
            lost, self._lost = self._lost, None
            return lost

    def invalidate(self, parts: Iterable[int] | None = None) -> None:
        """Let parts, by number, be scanned at once, for a change that no watch tells of. None: all parts."""
        with self._lock:
            self._number += 1
            for part in self._due_us if parts is None else parts:
                self._due_us[part], self._changed_at[part] = 0, self._number

    def put_off(self, until_us: int) -> None:
        """Let no part be scanned before a time, unless it changes: the shard cannot be scanned now."""
        with self._lock:
            for part, due_us in self._due_us.items():
                self._due_us[part] = max(due_us, until_us)

    def begin(self) -> int:
        """Return the number by which `record_scan` knows a scan that begins now."""
        return self._number

    def watch(self, tr: Transaction, parts: Sequence[PartKeys], now_us: int) -> list[Watch]:
        """Watch parts from the version on that `tr` reads at; counts once `record_scan` has it. May run twice."""
        return [(part, tr.watch(part.change_counter)) for part in parts if self._needs_watch(part.part, now_us)]

    def record_scan(self, number: int, now_us: int, due_us: Mapping[int, int], watches: Sequence[Watch]) -> None:
        """Record a committed scan that found nothing: when its parts are due again, and its watches.

        A change of a part since `begin` returned `number` outdates what was found there.
        """
        with self._lock:
            for number_of_part, due in due_us.items():
                self._looked_us[number_of_part] = now_us
                if self._changed_at[number_of_part] > number:
                    probe("something happens to a part while it is scanned")
                else:
                    self._due_us[number_of_part] = due
            before = [self._watches.pop(part.part, None) for part, _ in watches]
            for part, watch in watches:
                self._watches[part.part], self._watched_us[part.part] = watch, now_us
        for watch in before:
            if watch is not None:
                watch.cancel()
        for part, watch in watches:
            watch.on_ready(partial(self._changed, part))

    def _needs_watch(self, part: int, now_us: int) -> bool:
        return part not in self._watches or not 0 <= now_us - self._watched_us[part] < WATCH_US_MAX

    def _changed(self, part: PartKeys, watch: Any) -> None:
        with self._lock:
            if self._watches.get(part.part) is not watch:
                return  # It was replaced by a watch from a later version on.
            del self._watches[part.part]
        lost = watch_error(watch, self._errors)
        due_us = self._due_of(part) + (0 if lost is None else LOOK_US)
        with self._lock:
            self._due_us[part.part] = min(self._due_us[part.part], due_us)
            if lost is None:
                self._number += 1
                self._changed_at[part.part] = self._number
            else:
                probe("a watch of a part is lost")
                self._lost = lost
        self._wake()
