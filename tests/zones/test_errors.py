"""Errors cross actor borders by pickle, and have their variables in fields."""

from __future__ import annotations

import pickle

import pytest

from fairlead.zones import errors
from fairlead.zones.errors import QueueError

ERRORS = [error for error in vars(errors).values() if isinstance(error, type) and issubclass(error, QueueError)]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
def test_an_error_survives_pickle_with_its_fields(error: type[QueueError]) -> None:
    raised = error(item="0a1b", vests_in_ms=250)
    read = pickle.loads(pickle.dumps(raised))
    assert type(read) is error
    assert read.fields == {"item": "0a1b", "vests_in_ms": 250}
    assert str(read) == str(raised) == f"{error.message}, item='0a1b', vests_in_ms=250"


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
def test_an_error_names_the_remedy(error: type[QueueError]) -> None:
    assert error is QueueError or "Do:" in (error.__doc__ or "")


def test_every_error_has_a_message_of_its_own() -> None:
    assert len({error.message for error in ERRORS}) == len(ERRORS)
