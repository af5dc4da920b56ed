"""Settling items: what becomes of an item once its handler has ended, many items in one transaction.

Completed items go; failed ones are requeued with backoff, buried, or dropped, as their kind says (QuiCK section 6,
Algorithm 3). One lost item never fails the rest: each is checked against its own lease.
"""

import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from actors import retry
from actors.holdings import Held
from zones.attempt import Attempt
from zones.buried import bury, shortened
from zones.items import Outcome
from zones.records import ItemRecord, decode
from zones.shard import Shard
from zones.steps import alone, in_step

Settled = Counter[str]  # items by what became of them: completed, retried, buried, dropped, lost


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of a failed item: `delay_us` until its next attempt, or None: it failed for good."""

    held: Held
    delay_us: int | None
    error: str
    traceback: str


def judge(held: Held, error: BaseException, *, now_us: int, random: Random) -> Verdict:
    """Decide what becomes of an item whose handler raised `error`."""
    text = shortened(f"{type(error).__name__}: {error}")
    lines = shortened("".join(traceback.format_exception(error)))
    if isinstance(error, held.handler.permanent):
        return Verdict(held, None, text, lines)
    record = held.record
    delay_us = retry.delay_us(
        held.handler.retry,
        error_count=record.error_count + 1,
        age_us=now_us - record.enqueued_us,
        random=random,
    )
    return Verdict(held, delay_us, text, lines)


def settle(shard: Shard, completed: Sequence[Held], failed: Sequence[Verdict]) -> Settled:
    """Commit the ends of items of one shard in one transaction.

    Reads with conflict: per item its record, per tenant its ownership. After a commit of unknown result an item that
    is gone counts as completed: this call took it away.
    """
    attempts = 0

    def body(attempt: Attempt) -> Settled:
        nonlocal attempts
        attempts += 1
        return _settle_once(shard, attempt, completed, failed, gone_is_mine=attempts > 1)

    return shard.transact(body)


def _settle_once(
    shard: Shard, attempt: Attempt, completed: Sequence[Held], failed: Sequence[Verdict], *, gone_is_mine: bool
) -> Settled:
    settled: Settled = Counter()
    tr, now_us = attempt.tr, attempt.now_us
    for outcomes in in_step(_complete_by_zone(shard, tr, completed, now_us)):
        done = sum(outcome is Outcome.DONE or (gone_is_mine and outcome is Outcome.GONE) for outcome in outcomes)
        settled["completed"] += done
        settled["lost"] += len(outcomes) - done
    for verdict in failed:
        _settle_failed(shard, tr, verdict, now_us, settled)
    return settled


def _complete_by_zone(shard: Shard, tr: Any, completed: Sequence[Held], now_us: int) -> list[Any]:
    zones: dict[tuple[Any, str], list[tuple[bytes, bytes | None]]] = {}
    for held in completed:
        zones.setdefault((held.ref.tenant, held.ref.zone), []).append((held.ref.item_id, held.ref.lease_id))
    return [
        shard.zone(tenant, zone).complete_steps(tr, holdings, now_us=now_us)
        for (tenant, zone), holdings in zones.items()
    ]


def _settle_failed(shard: Shard, tr: Any, verdict: Verdict, now_us: int, settled: Settled) -> None:
    held = verdict.held
    zone = shard.zone(held.ref.tenant, held.ref.zone)
    if verdict.delay_us is not None:
        outcome = alone(
            zone.requeue_steps(
                tr,
                held.ref.item_id,
                held.ref.lease_id,
                delay_us=verdict.delay_us,
                now_us=now_us,
                error_count=held.record.error_count + 1,
                error=verdict.error,
            )
        )
        settled["retried"] += outcome is Outcome.DONE
        settled["lost"] += outcome is not Outcome.DONE
        return
    value = tr.get(zone.place.keys.item(held.ref.item_id)).value
    record = None if value is None else decode(ItemRecord, value)
    if record is None or record.lease_id != held.ref.lease_id:
        settled["lost"] += 1
    elif held.handler.drop:
        zone.complete(tr, held.ref.item_id, now_us=now_us, lease_id=held.ref.lease_id)
        settled["dropped"] += 1
    else:
        record.error_count += 1
        bury(
            tr,
            zone.place,
            held.ref.item_id,
            record,
            reason="error",
            error=verdict.error,
            traceback=verdict.traceback,
            now_us=now_us,
        )
        settled["buried"] += 1
