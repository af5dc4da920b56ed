"""Signals by a tenant's database and by a handle."""

from __future__ import annotations

import asyncio

import pytest

from fairlead import App, ItemGone, TenantDatabase
from fairlead.zones.keyspace import range_end
from fairlead.zones.workflow.signals import SIGNAL_KIND, signal_prefix


def signals_of(alice: TenantDatabase, run: bytes, name: str = "approved") -> int:
    """Return how many signals of a name wait for a run."""
    prefix = signal_prefix(alice.shard.layout.location(alice.tenant, "queue").keys.tenant, run, name)
    return alice.shard.transact(lambda attempt: len(list(attempt.tr.get_range(prefix, range_end(prefix)))))


def test_a_signal_is_sent_by_a_transaction_a_database_and_a_handle(alice: TenantDatabase) -> None:
    handle = alice.enqueue("mail")
    alice.transact(lambda tr: tr.signal(handle.item_id, "approved", 1))
    alice.signal(handle.item_id, "approved", 2)
    handle.signal("approved", 3)
    assert signals_of(alice, handle.item_id) == 3
    handle.cancel()
    assert signals_of(alice, handle.item_id) == 0
    with pytest.raises(ItemGone):
        handle.signal("approved", 4)


def test_a_coroutine_sends_signals(alice: TenantDatabase) -> None:
    handle = alice.enqueue("mail")

    async def approve() -> None:
        await alice.asignal(handle.item_id, "approved")
        await handle.asignal("approved", {"by": "bob"})

    asyncio.run(approve())
    assert signals_of(alice, handle.item_id) == 2


def test_a_signal_to_another_tenant_is_sent_by_naming_its_database(app: App, alice: TenantDatabase) -> None:
    alice.transact(lambda tr: tr.signal("checkout-7", "approved", to=app.tenant("shop/bob")))
    assert alice.count() == {SIGNAL_KIND: 1}


def test_a_signal_to_another_tenant_is_sent_although_no_handler_of_it_is_registered() -> None:
    strict = App("memory:", known_kinds_only=True)
    alice = strict.tenant("shop/alice")
    alice.transact(lambda tr: tr.signal("checkout-7", "approved", to="shop/bob"))
    assert alice.count() == {SIGNAL_KIND: 1}
    strict.close()
