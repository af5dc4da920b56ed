"""What processes leave for one another is theirs, whole, and gone with them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead.zones.engines import Database
from fairlead.zones.engines.embedded.cross_process.mailbox import FILE, SLOTS, Mailbox
from tests.contract.neighbours import Neighbour


@pytest.fixture
def store(tmp_path: Path) -> Path:
    (tmp_path / "letterboxes").mkdir()
    return tmp_path / "letterboxes"


@pytest.fixture
def mailbox(store: Path) -> Iterator[Mailbox]:
    opened = Mailbox(store)
    yield opened
    opened.close()


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Neighbour]:
    with Neighbour(f"embedded:{tmp_path / 'store'}") as neighbour:
        yield neighbour


KEPT: list[Mailbox] = []


def acquire_slot(_: Database, store: Path) -> int:
    KEPT.append(Mailbox(store))
    assert KEPT[-1].acquire_slot()
    return KEPT[-1].slot


def post(db: Database, store: Path, name: bytes, batch: bytes) -> int:
    number = acquire_slot(db, store)
    KEPT[-1].post(name, batch)
    return number


def answer_of(_: Database) -> bytes | None:
    KEPT[-1].await_wakeup(10)
    return KEPT[-1].answer()


def become_leader(_: Database, store: Path) -> bool:
    KEPT.append(Mailbox(store))
    return KEPT[-1].try_become_leader()


def test_a_batch_is_read_and_answered(store: Path, mailbox: Mailbox, other: Neighbour) -> None:
    number = other.ask(post, store, b"letter-1", b"please")
    assert list(mailbox.batches()) == [(number, b"letter-1", b"please")]
    mailbox.put_answer(number, b"letter-1", b"done")
    assert other.ask(answer_of) == b"done"
    assert mailbox.unanswered() == []


def test_an_answer_to_another_batch_is_none(store: Path, mailbox: Mailbox, other: Neighbour) -> None:
    number = other.ask(post, store, b"letter-2", b"please")
    mailbox.put_answer(number, b"letter-1", b"done")
    assert other.ask(answer_of) is None


def test_a_torn_batch_is_not_read(store: Path, mailbox: Mailbox, other: Neighbour) -> None:
    other.ask(post, store, b"letter-1", b"please, please")
    content = (store / FILE).read_bytes()
    with (store / FILE).open("r+b") as file:
        file.seek(content.index(b"please"))
        file.write(b"Please")
    assert list(mailbox.batches()) == []


def test_a_batch_that_is_replaced_while_it_is_read_is_not_taken_for_the_one_before(
    store: Path, mailbox: Mailbox, other: Neighbour
) -> None:
    """Its commits would be made under the marks of the letter before, and made again by who looks for their own."""
    other.ask(post, store, b"letter-1", b"please")
    with (store / FILE).open("r+b") as file:
        file.write(b"letter-0")
    assert list(mailbox.batches()) == []


def test_the_batch_of_a_dead_process_is_taken_out(store: Path, mailbox: Mailbox, other: Neighbour) -> None:
    other.ask(post, store, b"letter-1", b"please")
    other.kill()
    assert mailbox.unanswered() == [0]
    assert list(mailbox.batches()) == []
    assert mailbox.unanswered() == []


def test_who_takes_a_dead_ones_slot_finds_it_empty(
    store: Path, mailbox: Mailbox, other: Neighbour, tmp_path: Path
) -> None:
    number = other.ask(post, store, b"letter-1", b"please")
    other.kill()
    with Neighbour(f"embedded:{tmp_path / 'store'}") as next_one:
        assert next_one.ask(acquire_slot, store) == number
        assert list(mailbox.batches()) == []


def test_when_all_slots_are_taken_there_is_none(store: Path, other: Neighbour) -> None:
    assert other.ask(take_all_slots, store) == SLOTS
    mailbox = Mailbox(store)
    assert not mailbox.acquire_slot()
    other.kill()
    assert mailbox.acquire_slot()
    mailbox.close()


def take_all_slots(db: Database, store: Path) -> int:
    """Hold the locks of all boxes: a process has one box only, so through the class's own way to lock."""
    KEPT.append(Mailbox(store))
    return sum(KEPT[-1]._try_lock(1 + number) for number in range(SLOTS))


def test_one_process_leads_until_it_dies(store: Path, mailbox: Mailbox, other: Neighbour) -> None:
    assert other.ask(become_leader, store)
    assert not mailbox.try_become_leader()
    other.kill()
    assert mailbox.try_become_leader()
    mailbox.step_down()


def close_another_descriptor(store: Path) -> None:
    """The kernel drops a process's locks on a file when it closes any descriptor of it."""
    (store / FILE).open("rb").close()


def test_a_slot_whose_lock_was_lost_is_kept_by_whoever_uses_it_again(
    store: Path, mailbox: Mailbox, other: Neighbour
) -> None:
    assert mailbox.acquire_slot()
    close_another_descriptor(store)
    number = mailbox.slot
    assert mailbox.acquire_slot()
    assert mailbox.slot == number
    assert other.ask(acquire_slot, store) != number


def test_a_slot_whose_lock_another_process_has_taken_is_left_to_it(
    store: Path, mailbox: Mailbox, other: Neighbour
) -> None:
    assert mailbox.acquire_slot()
    close_another_descriptor(store)
    theirs = other.ask(post, store, b"letter-1", b"please")
    assert theirs == mailbox.slot
    assert mailbox.acquire_slot()
    assert mailbox.slot != theirs
    assert list(mailbox.batches()) == [(theirs, b"letter-1", b"please")]
