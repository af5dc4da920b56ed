"""What a handler enqueues: if it is transactional, the next item is there if and only if its own has ended."""

from __future__ import annotations

from typing import Any

from fairlead import App, Job, Retry
from tests.fairlead.both_kinds.queues import Queues
from tests.fairlead.live_consumers import consumer, eventually


def enqueue_next(alice: Queues, transaction: Any, store: str | None, kind: str, payload: Any) -> None:
    """Enqueue an item in the transaction of a handler, where the handler's own item lies."""
    if store is None:
        transaction.enqueue(kind, payload)
    else:
        alice.enqueue(kind, payload, within=transaction)


def test_the_next_item_of_a_chain_is_there_if_and_only_if_the_one_before_has_ended(
    app: App, alice: Queues, transactional: dict[str, Any], store: str | None
) -> None:
    ran: list[tuple[str, int]] = []

    @app.handler("first", retry=Retry(backoff=0.01), **transactional)
    def first(job: Job, transaction: Any) -> None:
        enqueue_next(alice, transaction, store, "second", job.attempt)
        if job.attempt == 1:
            raise ValueError("after the next item was enqueued")

    @app.handler("second", **transactional)
    def second(job: Job, transaction: Any) -> None:
        ran.append(("second", job.payload))
        enqueue_next(alice, transaction, store, "third", job.payload)

    @app.handler("third")
    def third(job: Job) -> None:
        ran.append(("third", job.payload))

    alice.enqueue("first")
    with consumer(app):
        eventually(lambda: len(ran) == 2 and alice.count() == {})
    assert ran == [("second", 2), ("third", 2)]


def test_a_plain_handler_enqueues_for_another_tenant(app: App, alice: Queues, bob: Queues) -> None:
    ran: list[tuple[str, str]] = []

    @app.handler("order")
    def order(job: Job) -> None:
        bob.enqueue("parcel", job.payload, item_id=f"parcel of {job.id.hex()}")

    app.handler("parcel")(lambda job: ran.append((job.tenant.user, job.payload)))
    alice.enqueue("order", "a book")
    with consumer(app):
        eventually(lambda: ran == [("bob", "a book")])
