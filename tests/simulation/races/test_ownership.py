"""A user's own reads and writes while the tenant moves: they take effect where the tenant lives, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fairlead.zones import tuples
from fairlead.zones.engines.api.errors import NOT_COMMITTED
from fairlead.zones.errors import TenantMoved
from fairlead.zones.records import OwnerRecord, encode
from fairlead.zones.tenant_transaction import ApplicationTransaction
from tests.simulation.races.director import Role
from tests.simulation.races.missing_guards import planted
from tests.simulation.races.scene import Scene

Body = Callable[[ApplicationTransaction], Any]

ORDER = ("order", 7)


def pay(tr: ApplicationTransaction) -> None:
    tr.set(ORDER, b"paid")


def pay_if_open(tr: ApplicationTransaction) -> None:
    if tr.get(ORDER, snapshot=True) == b"open":  # By snapshot: the order itself does not conflict.
        tr.set(ORDER, b"paid")


def a_payment_meets_a_move(scene: Scene, body: Body) -> Role[Any]:
    """Alice moves to another shard while the commit of her payment is on its way."""
    scene.has(lambda alice: alice.transact(lambda tr: tr.set(ORDER, b"open")))
    payer = scene.user("payer", lambda alice: alice.transact(body))
    payer.runs_until_commit()
    scene.plant(scene.location.keys.tenant.owner, encode(OwnerRecord(2, b"another shard's")))
    return payer


def stored(scene: Scene) -> bytes | None:
    """Return what the shard stores of the order, whoever owns it."""
    key = scene.location.keys.tenant.data + tuples.pack(ORDER)
    value: bytes | None = scene.play(lambda: scene.shard.transact(lambda attempt: attempt.tr.get(key).value))
    return value


@pytest.mark.parametrize("body", [pay, pay_if_open])
def test_a_payment_while_its_tenant_moves_away_is_not_made_on_the_old_shard(body: Body) -> None:
    scene = Scene()
    payer = a_payment_meets_a_move(scene, body)
    with pytest.raises(TenantMoved):
        payer.runs()
    assert (payer.refused, stored(scene)) == ([NOT_COMMITTED], b"open")


def test_without_a_read_of_the_owner_a_blind_write_is_left_behind_on_the_old_shard() -> None:
    scene = Scene()
    with planted("a user's write does not read the owner of its tenant"):
        a_payment_meets_a_move(scene, pay).runs()
    assert stored(scene) == b"paid"


def test_without_a_read_of_the_owner_a_write_behind_a_read_is_left_behind_on_the_old_shard() -> None:
    scene = Scene()
    with planted("a user's transaction does not read the owner of its tenant with conflict"):
        a_payment_meets_a_move(scene, pay_if_open).runs()
    assert stored(scene) == b"paid"
