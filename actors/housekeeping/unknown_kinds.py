"""Telling of kinds that wait and that no live consumer knows: once for each, by the consumer's housekeeping."""

import logging
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from fairlead.zones.engines import Reader
from fairlead.zones.layout import ShardLayout
from fairlead.zones.top_level import sessions
from fairlead.zones.top_level.depth import depth

log = logging.getLogger("fairlead.housekeeping")

LOOK_US = 10_000_000  # Between two looks at a shard: consumers that start together must have shown themselves.
WATCHED_LOOK_US = 60_000_000  # Where reads cost.
KINDS_MAX = 1_000  # So many are told of; a store with more has been told of often enough.


def unserved_kinds(tr: Reader, layout: ShardLayout, *, now_us: int) -> list[str]:
    """Return the kinds that have items and that no live consumer knows. Snapshot reads."""
    live = [each for each in sessions.listing(tr, now_us=now_us) if each.live]
    known = {kind for each in live for kind in each.record.kinds}
    return [kind for kind in depth(tr, layout).kinds if kind not in known]


class UnknownKinds:
    """What a consumer has told of, and when it looked last at each shard."""

    def __init__(self) -> None:
        self._logged: set[tuple[str, str]] = set()
        self._looked_us: dict[str, int] = {}

    def is_due(self, shard_name: str, now_us: int, *, look_us: int = LOOK_US) -> bool:
        """Say whether a shard is to be looked at now; the first time a while after the first question."""
        last_us = self._looked_us.setdefault(shard_name, now_us)
        if 0 <= now_us - last_us < look_us:
            return False
        self._looked_us[shard_name] = now_us
        return True

    def note(self, shard_name: str, kinds: Iterable[str], known: Sequence[str]) -> None:
        """Log the kinds that were not told of yet, each with the one of `known` that is spelt most alike."""
        for kind in kinds:
            if (shard_name, kind) in self._logged or len(self._logged) >= KINDS_MAX:
                continue
            self._logged.add((shard_name, kind))
            near = get_close_matches(kind, known, 1)
            log.warning(
                "shard %s: items of kind %s wait, and no live consumer has a handler of it%s",
                shard_name, kind, f"; nearest: {near[0]}" if near else "",
            )  # fmt: skip
