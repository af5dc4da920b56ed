"""Limits of kinds over a whole fleet: how many may run at once, and how many may start in a second.

    (ROOT, LIMIT, kind, GRANT, holder) -> a manager's grant: how many may run there, until when
    (ROOT, LIMIT, kind, BUCKET)        -> the kind's bucket of tokens: how many, as of when

They lie on the kind's own shard, whatever shards its items come from: no transaction crosses shards, and a fleet-wide
limit must be counted in one place. So that an item costs no transaction, managers take both in blocks and ahead of
time: slots for what they run and want to run, tokens for a moment's starts.

A grant is a lease. Its holder renews it while it holds items of the kind, and says at least how many; of one that is
dead it ends when its items' leases have ended, and those run elsewhere. Tokens that nobody has used come back; those of
the dead are lost, so a limit is never exceeded by them.
"""

from typing import Any

import msgspec

from zones.keyspace import LIMIT, ROOT, pack_bytes, pack_int, pack_text, range_begin, range_end
from zones.probes import probe
from zones.records import Count, KindRule, TimeUs, pack_value, unpacked
from zones.vesting import WANT_ALL

TOKEN = 1_000  # Tokens are counted in thousandths.
AHEAD_US_MAX = 3_600_000_000  # No good clock is an hour ahead: such a bucket is damaged, and would never fill.

_LIMIT = ROOT + pack_int(LIMIT)
_GRANT, _BUCKET = pack_int(1), pack_int(2)


class Grant(msgspec.Struct, array_like=True, frozen=True):
    """So many items of a kind may run at one manager until then."""

    slots: Count
    until_us: TimeUs


class Bucket(msgspec.Struct, array_like=True, frozen=True):
    """So many thousandths of a token were there then."""

    tokens: Count
    at_us: TimeUs


_grants = msgspec.msgpack.Decoder(Grant)
_buckets = msgspec.msgpack.Decoder(Bucket)


def take_slots(
    tr: Any, kind: str, maximum: int, *, holder: bytes, held: int, wanted: int, lease_us: int, lease_us_max: int,
    now_us: int
) -> int:  # fmt: skip
    """Grant a holder up to `wanted` of the `maximum` that may run at once, in place of what it had; return how many.

    What it holds already is written down whatever the maximum: others count it. A grant that would last longer than
    `lease_us_max` was written by a clock that was wrong, and has ended.

    Reads with conflict: all grants of the kind. Writes: the holder's, and clears those that have ended. May run twice.
    """
    prefix = _LIMIT + pack_text(kind) + _GRANT
    own = prefix + pack_bytes(holder)
    others = 0
    for row in tr.get_range(range_begin(prefix), range_end(prefix), streaming_mode=WANT_ALL):
        grant = unpacked(_grants, row.value)
        if row.key == own:
            continue
        if grant is None or not now_us < grant.until_us <= now_us + lease_us_max:
            probe("a grant of slots has ended with its holder")
            tr.clear(row.key)
        else:
            others += grant.slots
    slots = max(0, min(wanted, maximum - others))
    if slots or held:
        tr.set(own, pack_value(Grant(max(held, slots), now_us + lease_us)))
    else:
        tr.clear(own)
    return slots


def take_tokens(tr: Any, kind: str, rule: KindRule, *, wanted: int, returned: int, now_us: int) -> int:
    """Take up to `wanted` tokens out of a kind's bucket, after `returned` unused ones were put back; return how many.

    The bucket fills at `rule.per_s` up to `rule.burst`. Reads and writes it, with conflict; may run twice.
    """
    assert rule.per_s is not None
    key = _LIMIT + pack_text(kind) + _BUCKET
    tokens = tokens_in(tr.get(key).value, rule.per_s, rule.burst, now_us=now_us) + returned * TOKEN
    taken = max(0, min(wanted, tokens // TOKEN))
    take_out(tr, key, rule.per_s, rule.burst, tokens=taken - returned, now_us=now_us)
    return taken


def is_kind_full(tr: Any, kind: str, rule: KindRule, *, now_us: int) -> bool:
    """Say whether a kind's own shard has granted all that may run or start now; of others it is False. Snapshot reads.

    For whoever asks why; nothing is taken by it.
    """
    prefix = _LIMIT + pack_text(kind) + _GRANT
    rows = tr.snapshot.get_range(range_begin(prefix), range_end(prefix), streaming_mode=WANT_ALL)
    bucket = tr.snapshot.get(_LIMIT + pack_text(kind) + _BUCKET)
    grants = [grant for row in rows if (grant := unpacked(_grants, row.value)) is not None]
    granted = sum(grant.slots for grant in grants if grant.until_us > now_us)
    if rule.max_running is not None and granted >= rule.max_running:
        return True
    return rule.per_s is not None and tokens_in(bucket.value, rule.per_s, rule.burst, now_us=now_us) < TOKEN


def tokens_in(value: bytes | None, per_s: float, burst: int, *, now_us: int) -> int:
    """Return how many thousandths of a token are in a bucket that is stored as `value`; None: nobody took any yet."""
    return _filled(value, per_s, burst, now_us).tokens


def take_out(tr: Any, key: bytes, per_s: float, burst: int, *, tokens: int, now_us: int) -> None:
    """Take tokens out of the bucket under `key`, or put some back: fewer than none. Reads it with conflict."""
    bucket = _filled(tr.get(key).value, per_s, burst, now_us)
    left = min(burst * TOKEN, bucket.tokens - tokens * TOKEN)
    tr.set(key, pack_value(Bucket(left, bucket.at_us)))


def _filled(value: bytes | None, per_s: float, burst: int, now_us: int) -> Bucket:
    """Return a bucket as it is now; a clock that is behind the one that wrote it fills it no further."""
    bucket = None if value is None else unpacked(_buckets, value)
    if bucket is None or bucket.at_us > now_us + AHEAD_US_MAX:
        return Bucket(burst * TOKEN, now_us)
    passed_us = max(0, now_us - bucket.at_us)
    tokens = min(burst * TOKEN, bucket.tokens + int(passed_us * per_s * TOKEN / 1e6))
    return Bucket(tokens, max(now_us, bucket.at_us))


def forget_limit(tr: Any, kind: str) -> None:
    """Clear what a limit that is no more has left. Writes only."""
    prefix = _LIMIT + pack_text(kind)
    tr.clear_range(range_begin(prefix), range_end(prefix))
