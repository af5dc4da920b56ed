"""What processes leave for one another is theirs, whole, and gone with them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead.zones.engines import Database
from fairlead.zones.engines.embedded.cross_process.mailbox import BOXES, FILE, Letterbox
from tests.contract.neighbours import Neighbour


@pytest.fixture
def store(tmp_path: Path) -> Path:
    (tmp_path / "letterboxes").mkdir()
    return tmp_path / "letterboxes"


@pytest.fixture
def box(store: Path) -> Iterator[Letterbox]:
    opened = Letterbox(store)
    yield opened
    opened.close()


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Neighbour]:
    with Neighbour(f"embedded:{tmp_path / 'store'}") as neighbour:
        yield neighbour


KEPT: list[Letterbox] = []


def take_box(_: Database, store: Path) -> int:
    KEPT.append(Letterbox(store))
    assert KEPT[-1].take_box()
    return KEPT[-1].number


def leave(db: Database, store: Path, name: bytes, letter: bytes) -> int:
    number = take_box(db, store)
    KEPT[-1].leave(name, letter)
    return number


def answer_of(_: Database) -> bytes | None:
    KEPT[-1].await_word(10)
    return KEPT[-1].answer()


def lead(_: Database, store: Path) -> bool:
    KEPT.append(Letterbox(store))
    return KEPT[-1].try_lead()


def test_a_letter_is_read_and_answered(store: Path, box: Letterbox, other: Neighbour) -> None:
    number = other.ask(leave, store, b"letter-1", b"please")
    assert list(box.letters()) == [(number, b"letter-1", b"please")]
    box.put_answer(number, b"letter-1", b"done")
    assert other.ask(answer_of) == b"done"
    assert box.unanswered() == []


def test_an_answer_to_another_letter_is_none(store: Path, box: Letterbox, other: Neighbour) -> None:
    number = other.ask(leave, store, b"letter-2", b"please")
    box.put_answer(number, b"letter-1", b"done")
    assert other.ask(answer_of) is None


def test_a_torn_letter_is_not_read(store: Path, box: Letterbox, other: Neighbour) -> None:
    other.ask(leave, store, b"letter-1", b"please, please")
    content = (store / FILE).read_bytes()
    with (store / FILE).open("r+b") as file:
        file.seek(content.index(b"please"))
        file.write(b"Please")
    assert list(box.letters()) == []


def test_a_letter_that_is_replaced_while_it_is_read_is_not_taken_for_the_one_before(
    store: Path, box: Letterbox, other: Neighbour
) -> None:
    """Its commits would be made under the marks of the letter before, and made again by who looks for their own."""
    other.ask(leave, store, b"letter-1", b"please")
    with (store / FILE).open("r+b") as file:
        file.write(b"letter-0")
    assert list(box.letters()) == []


def test_the_letter_of_a_dead_process_is_taken_out(store: Path, box: Letterbox, other: Neighbour) -> None:
    other.ask(leave, store, b"letter-1", b"please")
    other.kill()
    assert box.unanswered() == [0]
    assert list(box.letters()) == []
    assert box.unanswered() == []


def test_who_takes_a_dead_ones_box_finds_it_empty(
    store: Path, box: Letterbox, other: Neighbour, tmp_path: Path
) -> None:
    number = other.ask(leave, store, b"letter-1", b"please")
    other.kill()
    with Neighbour(f"embedded:{tmp_path / 'store'}") as next_one:
        assert next_one.ask(take_box, store) == number
        assert list(box.letters()) == []


def test_when_all_boxes_are_taken_there_is_none(store: Path, other: Neighbour) -> None:
    assert other.ask(take_all_boxes, store) == BOXES
    box = Letterbox(store)
    assert not box.take_box()
    other.kill()
    assert box.take_box()
    box.close()


def take_all_boxes(db: Database, store: Path) -> int:
    """Hold the locks of all boxes: a process has one box only, so through the class's own way to lock."""
    KEPT.append(Letterbox(store))
    return sum(KEPT[-1]._try_lock(1 + number) for number in range(BOXES))


def test_one_process_leads_until_it_dies(store: Path, box: Letterbox, other: Neighbour) -> None:
    assert other.ask(lead, store)
    assert not box.try_lead()
    other.kill()
    assert box.try_lead()
    box.step_down()


def close_another_descriptor(store: Path) -> None:
    """The kernel drops a process's locks on a file when it closes any descriptor of it."""
    (store / FILE).open("rb").close()


def test_a_box_whose_lock_was_lost_is_kept_by_whoever_uses_it_again(
    store: Path, box: Letterbox, other: Neighbour
) -> None:
    assert box.take_box()
    close_another_descriptor(store)
    number = box.number
    assert box.take_box()
    assert box.number == number
    assert other.ask(take_box, store) != number


def test_a_box_whose_lock_another_process_has_taken_is_left_to_it(
    store: Path, box: Letterbox, other: Neighbour
) -> None:
    assert box.take_box()
    close_another_descriptor(store)
    theirs = other.ask(leave, store, b"letter-1", b"please")
    assert theirs == box.number
    assert box.take_box()
    assert box.number != theirs
    assert list(box.letters()) == [(theirs, b"letter-1", b"please")]
