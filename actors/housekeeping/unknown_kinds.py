"""Warnings about kinds with items that no live consumer handles: one for each kind, by the consumer's housekeeping."""

import logging
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from fairlead.zones.engines import Reader
from fairlead.zones.layout import ShardLayout
from fairlead.zones.top_level import sessions
from fairlead.zones.top_level.depth import depth
from fairlead.zones.top_level.sessions import ListedSession
from fairlead.zones.workflow.locks import HOLD_KIND

log = logging.getLogger("fairlead.housekeeping")

# Between two checks of a shard: consumers that start together need time for their first heartbeats.
LOOK_US = 10_000_000
WATCHED_LOOK_US = 60_000_000  # Where reads are expensive.
KINDS_MAX = 1_000  # So many kinds are logged; more warnings would help nobody.


def unserved_kinds(tr: Reader, layout: ShardLayout, *, now_us: int) -> list[str]:
    """Return the kinds that have items and that no live consumer handles. Snapshot reads."""
    return unserved_of(depth(tr, layout).kinds, sessions.listing(tr, now_us=now_us))


def unserved_of(kinds: Iterable[str], consumers: Iterable[ListedSession]) -> list[str]:
    """Return those of `kinds` that no live consumer handles. Each handles holds, which no session lists."""
    live = [each.record.kinds for each in consumers if each.live]
    known = {kind for each in live for kind in (HOLD_KIND, *each)}
    return [kind for kind in kinds if kind not in known]


class UnknownKinds:
    """Which kinds a consumer has logged, and when it checked each shard last."""

    def __init__(self) -> None:
        self._logged: set[tuple[str, str]] = set()
        self._looked_us: dict[str, int] = {}

    def is_due(self, shard_name: str, now_us: int, *, look_us: int = LOOK_US) -> bool:
        """Say whether to check a shard now; the first check comes a while after the first call."""
        last_us = self._looked_us.setdefault(shard_name, now_us)
        if 0 <= now_us - last_us < look_us:
            return False
        self._looked_us[shard_name] = now_us
        return True

    def note(self, shard_name: str, kinds: Iterable[str], known: Sequence[str]) -> None:
        """Log the kinds that were not logged yet, each with the most similar one of `known`."""
        for kind in kinds:
            if (shard_name, kind) in self._logged or len(self._logged) >= KINDS_MAX:
                continue
            self._logged.add((shard_name, kind))
            near = get_close_matches(kind, known, 1)
            log.warning(
                "shard %s: items of kind %s wait, and no live consumer has a handler for it%s",
                shard_name, kind, f"; nearest: {near[0]}" if near else "",
            )  # fmt: skip
