"""Aborting by hand what a transaction across shards has left, because its home shard is lost."""

from collections.abc import Mapping
from functools import partial
from random import Random
from typing import NamedTuple

from fairlead.operator import Operator
from fairlead.shards import Shards, StoreMissing
from fairlead.zones.engines import StoreError, transact
from fairlead.zones.errors import BadArgument, QueueError, ShardRefused
from fairlead.zones.layout import ID_BYTES, Tenant
from fairlead.zones.records import TransactionId
from fairlead.zones.reporting import audit_log
from fairlead.zones.shard import Shard
from fairlead.zones.spanning import decision, lost_home
from fairlead.zones.spanning.lost_home import Prepared
from fairlead.zones.spanning.recovery import outcome
from fairlead.zones.transaction_runner import Attempt

ABORT = "abort transaction"  # In the audit log.


class NothingPrepared(QueueError):
    """No shard that can be read has anything prepared of this transaction, and it has locked no tenant there.

    Do: compare the id with the one that the error named which told you of it. If a shard is `away`, try again once it
    is back. Otherwise there is nothing to do: the transaction is settled.
    """

    message = "nothing of this transaction is prepared"


class HomeAnswers(QueueError):
    """The home shard of the transaction can be asked whether it is committed; nothing was changed.

    Do: nothing. Whoever meets its locks settles the transaction, and otherwise any consumer does, within seconds. If it
    is committed, and what it has prepared is damaged, restore the shard from a backup.
    """

    message = "the home shard of the transaction can be asked, so it is not aborted by hand"


class HomeNotGivenUp(QueueError):
    """The home shard of the transaction cannot be asked, and nobody has said that it is lost; nothing was changed.

    The transaction may be committed there. To abort it on the other shards keeps a part of it undone.

    Do: bring the home shard back, and the transaction settles by itself. If the shard is lost for good, repeat the
    command with `--home-is-lost`, and compare what the transaction's tenants hold afterwards.
    """

    message = "the home shard of the transaction cannot be asked, and may still be there"


class AbortedTransaction(NamedTuple):
    """What was aborted: the tenants that are free again, by the name of their shard. `away`: shards not read."""

    tenants: Mapping[str, list[Tenant]]
    away: list[str]


def abort_transaction(
    shards: Shards, text: str, operator: Operator, random: Random, *, home_is_lost: bool
) -> AbortedTransaction:
    """Abort a transaction across shards on all shards that can be read, and write an audit entry on each.

    Args:
      text: the transaction, as errors name it.
      home_is_lost: the operator says that the shard which decides about it is lost for good.

    Raises:
      BadArgument: `text` names no transaction.
      NothingPrepared, HomeAnswers, HomeNotGivenUp: see there.
      PreparedUnreadable: a newer version has prepared it.
    """
    transaction = lost_home.parsed(text)
    if transaction is None:
        raise BadArgument(argument="transaction", value=text, allowed="an id as errors name it, such as 63f..-9c..-1")
    found, away = _prepared_on_shards(shards, transaction)
    if not found:
        raise NothingPrepared(transaction=text, away=away or None)
    home_id = next((each.home_id for _, each in found if each.home_id is not None), None)
    is_safe = home_id is not None and _is_aborted_at_home(shards, transaction, home_id, found)
    if not (is_safe or home_is_lost):
        names = [str(tenant) for _, each in found for tenant in each.tenants]
        raise HomeNotGivenUp(transaction=text, home=None if home_id is None else home_id.hex(), tenants=names)
    audit_id = random.randbytes(ID_BYTES)
    for shard, prepared in found:
        _drop(shard, transaction, prepared, operator, audit_id)
    return AbortedTransaction({shard.name: list(each.tenants) for shard, each in found}, away)


def _prepared_on_shards(shards: Shards, transaction: TransactionId) -> tuple[list[tuple[Shard, Prepared]], list[str]]:
    """Return what each shard has of a transaction, and which shards cannot be read."""
    found, away = [], []
    for name in shards:
        try:
            shard = shards[name]
        except (StoreError, StoreMissing, ShardRefused):
            away.append(name)
            continue
        try:
            prepared = _on_shard(shard, transaction)
        except shard.db.errors:
            away.append(name)
            continue
        if prepared is not None:
            found.append((shard, prepared))
    return found, away


def _on_shard(shard: Shard, transaction: TransactionId) -> Prepared | None:
    read = partial(lost_home.read_prepared, layout=shard.layout, transaction=transaction)
    prepared = transact(shard.db, read)
    if prepared is not None and not prepared.is_damaged:
        return prepared
    tenants: list[Tenant] = []
    home_id = None
    begin: bytes | None = b""
    while begin is not None:
        some = transact(shard.db, partial(lost_home.search_locks, transaction=transaction, begin=begin))
        tenants, home_id, begin = tenants + some.tenants, some.home_id or home_id, some.next_key
    if prepared is None and not tenants:
        return None
    return Prepared(tenants, home_id, is_damaged=True)


def _is_aborted_at_home(
    shards: Shards, transaction: TransactionId, home_id: bytes, found: list[tuple[Shard, Prepared]]
) -> bool:
    """Say whether a damaged transaction is aborted at home, by now; False: home cannot be asked.

    Raises:
      HomeAnswers: it is not damaged, or it is committed.
    """
    home = shards.with_id(home_id)
    if home is None:
        return False
    is_damaged = any(each.is_damaged for _, each in found)
    try:
        decided = transact(home.db, lambda tr: decision.ask(tr, transaction))
        if is_damaged and not decided:
            decided = outcome(home, found[0][0], transaction, may_abort=True)
    except home.db.errors:
        return False
    if is_damaged and not decided:
        return True
    said = {None: "undecided", True: "committed", False: "aborted"}[decided]
    raise HomeAnswers(transaction=str(transaction), home=home.name, it_is=said, damaged=is_damaged or None)


def _drop(shard: Shard, transaction: TransactionId, found: Prepared, operator: Operator, audit_id: bytes) -> None:
    """Drop it on one shard, with an audit entry, in one transaction."""
    to = {"transaction": str(transaction), "tenants": [str(tenant) for tenant in found.tenants]}

    def body(attempt: Attempt) -> None:
        attempt.needs_receipt = True
        lost_home.drop(attempt.tr, shard.layout, transaction, found)
        audit_log.write(attempt.tr, operator.audit_entry(audit_id, ABORT, to, done_us=attempt.now_us))

    shard.transact(body)
