"""Errors of steps: what is recorded of them, and what the workflow's code gets."""

from __future__ import annotations

from fairlead.actors.handlers import PermanentError
from fairlead.workflows.recorded_errors import StepFailed, rebuilt, stored_error


class CardDeclined(Exception):
    pass


class Picky(Exception):
    def __init__(self, code: int, *, reason: str) -> None:
        super().__init__(code, reason)


PERMANENT = (PermanentError, CardDeclined, Picky)


def test_an_error_of_a_permanent_class_comes_back_as_itself() -> None:
    error = rebuilt("pay", stored_error(CardDeclined("no funds", 7)), PERMANENT)
    assert type(error) is CardDeclined
    assert error.args == ("no funds", 7)


def test_an_error_of_another_class_comes_back_as_a_failed_step() -> None:
    error = rebuilt("pay", stored_error(KeyError("order")), PERMANENT)
    assert isinstance(error, StepFailed)
    assert (error.step, error.error_type, error.error) == ("pay", "KeyError", "'order'")


def test_an_error_that_cannot_be_rebuilt_comes_back_as_a_failed_step() -> None:
    for original in (Picky(7, reason="late"), CardDeclined(object())):
        assert isinstance(rebuilt("pay", stored_error(original), PERMANENT), StepFailed)
