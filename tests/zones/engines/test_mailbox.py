"""A mailbox returns batches and answers whole, each to its own process, and discards those of dead processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead.zones.engines import Database
from fairlead.zones.engines.embedded.cross_process.mailbox import FILE, SLOTS, Mailbox
from tests.contract.other_process import OtherProcess


@pytest.fixture
def store(tmp_path: Path) -> Path:
    (tmp_path / "mailbox").mkdir()
    return tmp_path / "mailbox"


@pytest.fixture
def mailbox(store: Path) -> Iterator[Mailbox]:
    opened = Mailbox(store)
    yield opened
    opened.close()


@pytest.fixture
def other(tmp_path: Path) -> Iterator[OtherProcess]:
    with OtherProcess(f"embedded:{tmp_path / 'store'}") as other:
        yield other


opened_mailboxes: list[Mailbox] = []


def acquire_slot(_: Database, store: Path) -> int:
    opened_mailboxes.append(Mailbox(store))
    assert opened_mailboxes[-1].acquire_slot()
    return opened_mailboxes[-1].slot


def post(db: Database, store: Path, name: bytes, batch: bytes) -> int:
    slot = acquire_slot(db, store)
    opened_mailboxes[-1].post(name, batch)
    return slot


def answer_of(_: Database) -> bytes | None:
    opened_mailboxes[-1].await_wakeup(10)
    return opened_mailboxes[-1].answer()


def become_leader(_: Database, store: Path) -> bool:
    opened_mailboxes.append(Mailbox(store))
    return opened_mailboxes[-1].try_become_leader()


def test_a_batch_is_read_and_answered(store: Path, mailbox: Mailbox, other: OtherProcess) -> None:
    slot = other.call(post, store, b"batch-01", b"please")
    assert list(mailbox.batches()) == [(slot, b"batch-01", b"please")]
    mailbox.put_answer(slot, b"batch-01", b"done")
    assert other.call(answer_of) == b"done"
    assert mailbox.unanswered() == []


def test_an_answer_to_another_batch_is_none(store: Path, mailbox: Mailbox, other: OtherProcess) -> None:
    slot = other.call(post, store, b"batch-02", b"please")
    mailbox.put_answer(slot, b"batch-01", b"done")
    assert other.call(answer_of) is None


def test_a_torn_batch_is_not_read(store: Path, mailbox: Mailbox, other: OtherProcess) -> None:
    other.call(post, store, b"batch-01", b"please, please")
    content = (store / FILE).read_bytes()
    with (store / FILE).open("r+b") as file:
        file.seek(content.index(b"please"))
        file.write(b"Please")
    assert list(mailbox.batches()) == []


def test_a_batch_that_is_replaced_while_it_is_read_is_not_taken_for_the_one_before(
    store: Path, mailbox: Mailbox, other: OtherProcess
) -> None:
    """Its commits would get the commit ids of the batch before, and their own process would make them again."""
    other.call(post, store, b"batch-01", b"please")
    with (store / FILE).open("r+b") as file:
        file.write(b"batch-00")
    assert list(mailbox.batches()) == []


def test_the_batch_of_a_dead_process_is_discarded(store: Path, mailbox: Mailbox, other: OtherProcess) -> None:
    other.call(post, store, b"batch-01", b"please")
    other.kill()
    assert mailbox.unanswered() == [0]
    assert list(mailbox.batches()) == []
    assert mailbox.unanswered() == []


def test_the_slot_of_a_dead_process_is_empty_for_its_next_owner(
    store: Path, mailbox: Mailbox, other: OtherProcess, tmp_path: Path
) -> None:
    slot = other.call(post, store, b"batch-01", b"please")
    other.kill()
    with OtherProcess(f"embedded:{tmp_path / 'store'}") as next_one:
        assert next_one.call(acquire_slot, store) == slot
        assert list(mailbox.batches()) == []


def test_a_process_gets_no_slot_while_all_are_taken(store: Path, other: OtherProcess) -> None:
    assert other.call(take_all_slots, store) == SLOTS
    mailbox = Mailbox(store)
    assert not mailbox.acquire_slot()
    other.kill()
    assert mailbox.acquire_slot()
    mailbox.close()


def take_all_slots(db: Database, store: Path) -> int:
    """Hold the locks of all slots, by a private method: a process has only one slot."""
    opened_mailboxes.append(Mailbox(store))
    return sum(opened_mailboxes[-1]._try_lock(1 + slot) for slot in range(SLOTS))


def test_one_process_is_leader_until_it_dies(store: Path, mailbox: Mailbox, other: OtherProcess) -> None:
    assert other.call(become_leader, store)
    assert not mailbox.try_become_leader()
    other.kill()
    assert mailbox.try_become_leader()
    mailbox.step_down()


def close_another_descriptor(store: Path) -> None:
    """The kernel drops a process's locks on a file when it closes any descriptor of it."""
    (store / FILE).open("rb").close()


def test_a_process_that_lost_the_lock_of_its_slot_takes_the_same_slot_again(
    store: Path, mailbox: Mailbox, other: OtherProcess
) -> None:
    assert mailbox.acquire_slot()
    close_another_descriptor(store)
    slot = mailbox.slot
    assert mailbox.acquire_slot()
    assert mailbox.slot == slot
    assert other.call(acquire_slot, store) != slot


def test_a_process_that_lost_its_slot_to_another_takes_a_new_one(
    store: Path, mailbox: Mailbox, other: OtherProcess
) -> None:
    assert mailbox.acquire_slot()
    close_another_descriptor(store)
    theirs = other.call(post, store, b"batch-01", b"please")
    assert theirs == mailbox.slot
    assert mailbox.acquire_slot()
    assert mailbox.slot != theirs
    assert list(mailbox.batches()) == [(theirs, b"batch-01", b"please")]
