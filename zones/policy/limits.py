"""Limits of kinds over a whole fleet: how many may run at once, and how many may start in a second.

    (ROOT, LIMIT, kind, GRANT, holder) -> a manager's grant: how many may run there, until when
    (ROOT, LIMIT, kind, BUCKET)        -> the kind's token bucket: how many tokens, as of when

They lie on the kind's own shard, whichever shards its items come from: no transaction crosses shards, and a fleet-wide
limit must be counted in one place. To avoid a transaction per item, managers take both in blocks and ahead of time:
slots for the items that they run and want to run, tokens for the starts of a moment.

A grant is a lease. Its holder renews it while it holds items of the kind, for at least as many as it holds. The grant
of a dead holder expires when the leases of its items have expired and other managers run these items. Unused tokens are
returned. The tokens of a dead holder are lost, so the limit is not exceeded.

A clock may be set back. A grant or bucket with a time that no good clock shows yet (good clocks differ by at most
`clocks_apart_us`) was written by a clock that was ahead, so its age is unknown. Such a grant has expired, and such a
bucket is full.
"""

import msgspec

from fairlead.zones.engines import Reader, Transaction
from fairlead.zones.keyspace import LIMIT, ROOT, pack_bytes, pack_int, pack_text, range_begin, range_end
from fairlead.zones.probes import probe
from fairlead.zones.queue.index_scan import WANT_ALL
from fairlead.zones.records import Count, KindPolicy, Policy, TimeUs, pack_value, unpacked

TOKEN = 1_000  # Tokens are counted in thousandths.

_LIMIT = ROOT + pack_int(LIMIT)
_GRANT, _BUCKET = pack_int(1), pack_int(2)


class Grant(msgspec.Struct, array_like=True, frozen=True):
    """So many items of a kind may run at one manager until then; it was granted for `lease_us`."""

    slots: Count
    until_us: TimeUs
    lease_us: TimeUs = 0


class Bucket(msgspec.Struct, array_like=True, frozen=True):
    """So many thousandths of a token were there then."""

    tokens: Count
    at_us: TimeUs


_grants = msgspec.msgpack.Decoder(Grant)
_buckets = msgspec.msgpack.Decoder(Bucket)


def is_in_force(until_us: int, lease_us: int, *, now_us: int, clocks_apart_us: int) -> bool:
    """Say whether a grant for `lease_us` that ends at `until_us` is in force: begun by a good clock, and not expired.

    A grant that begins in the future was written by a clock that has been set back since.
    """
    return now_us < until_us <= now_us + lease_us + clocks_apart_us


def take_slots(
    tr: Transaction, kind: str, maximum: int, *, holder: bytes, held: int, wanted: int, lease_us: int,
    clocks_apart_us: int, now_us: int,
) -> int:  # fmt: skip
    """Grant a holder up to `wanted` of the `maximum` slots, in place of its former grant; return how many.

    What the holder already uses is written even above the maximum, because other managers must count it. Only grants in
    force count; see `is_in_force`.

    Reads all grants of the kind with conflict. Writes the holder's grant, and clears expired ones. May run twice.
    """
    prefix = _LIMIT + pack_text(kind) + _GRANT
    own = prefix + pack_bytes(holder)
    others = 0
    for row in tr.get_range(range_begin(prefix), range_end(prefix), streaming_mode=WANT_ALL):
        grant = unpacked(_grants, row.value)
        if row.key == own:
            continue
        if grant is None or not is_in_force(
            grant.until_us, grant.lease_us, now_us=now_us, clocks_apart_us=clocks_apart_us
        ):
            probe("a grant of slots has expired")
            tr.clear(row.key)
        else:
            others += grant.slots
    slots = max(0, min(wanted, maximum - others))
    if slots or held:
        tr.set(own, pack_value(Grant(max(held, slots), now_us + lease_us, lease_us)))
    else:
        tr.clear(own)
    return slots


def take_tokens(
    tr: Transaction, kind: str, policy: KindPolicy, *, wanted: int, returned: int, clocks_apart_us: int, now_us: int
) -> int:
    """Return `returned` unused tokens to a kind's bucket, and take up to `wanted`; return how many were taken.

    The bucket fills at `policy.per_s` up to `policy.burst`. Reads and writes it, with conflict; may run twice.
    """
    assert policy.per_s is not None
    key = _LIMIT + pack_text(kind) + _BUCKET
    bucket = _filled(tr.get(key).value, policy, now_us, clocks_apart_us)
    taken = max(0, min(wanted, bucket.tokens // TOKEN + returned))
    _take_out(tr, key, policy, bucket, taken - returned)
    return taken


def is_kind_full(tr: Reader, kind: str, policy: KindPolicy, *, clocks_apart_us: int, now_us: int) -> bool:
    """Say whether a kind's own shard has granted all that may run or start now; False on other shards. Snapshot reads.

    For diagnosis; it takes nothing.
    """
    prefix = _LIMIT + pack_text(kind) + _GRANT
    rows = tr.snapshot.get_range(range_begin(prefix), range_end(prefix), streaming_mode=WANT_ALL)
    bucket = tr.snapshot.get(_LIMIT + pack_text(kind) + _BUCKET)
    grants = [grant for row in rows if (grant := unpacked(_grants, row.value)) is not None]
    granted = sum(
        grant.slots
        for grant in grants
        if is_in_force(grant.until_us, grant.lease_us, now_us=now_us, clocks_apart_us=clocks_apart_us)
    )
    if policy.max_running is not None and granted >= policy.max_running:
        return True
    return policy.per_s is not None and not tokens_in(
        bucket.value, policy, clocks_apart_us=clocks_apart_us, now_us=now_us
    )


def tokens_in(value: bytes | None, policy: Policy, *, clocks_apart_us: int, now_us: int) -> int:
    """Return how many tokens are in a bucket that is stored as `value`; None: a full bucket."""
    return _filled(value, policy, now_us, clocks_apart_us).tokens // TOKEN


def take_out(tr: Transaction, key: bytes, policy: Policy, *, tokens: int, clocks_apart_us: int, now_us: int) -> None:
    """Take tokens out of the bucket under `key`. Reads it with conflict."""
    _take_out(tr, key, policy, _filled(tr.get(key).value, policy, now_us, clocks_apart_us), tokens)


def _take_out(tr: Transaction, key: bytes, policy: Policy, bucket: Bucket, tokens: int) -> None:
    """Write a bucket without so many tokens; a negative number adds tokens."""
    left = min(policy.burst * TOKEN, bucket.tokens - tokens * TOKEN)
    tr.set(key, pack_value(Bucket(left, bucket.at_us)))


def _filled(value: bytes | None, policy: Policy, now_us: int, clocks_apart_us: int) -> Bucket:
    """Return a bucket as it is now.

    A clock slightly behind the last writer's does not fill the bucket: otherwise the time between two good clocks would
    count each time that one writes after the other. A time that no good clock shows was written by a clock that has
    been set back, or is damaged: the age of the bucket is unknown, and it counts as full.
    """
    assert policy.per_s is not None
    bucket = None if value is None else unpacked(_buckets, value)
    if bucket is None or bucket.at_us > now_us + clocks_apart_us:
        return Bucket(policy.burst * TOKEN, now_us)
    passed_us = max(0, now_us - bucket.at_us)
    tokens = min(policy.burst * TOKEN, bucket.tokens + int(passed_us * policy.per_s * TOKEN / 1e6))
    return Bucket(tokens, max(now_us, bucket.at_us))


def clear_limit_state(tr: Transaction, kind: str) -> None:
    """Clear the grants and the bucket of a limit that was removed. Writes only."""
    prefix = _LIMIT + pack_text(kind)
    tr.clear_range(range_begin(prefix), range_end(prefix))
