"""Errors say what happened in a constant sentence, with what varies beside it."""

from __future__ import annotations

import pickle

from fairlead.zones.engines import StoreError, StoreUnavailable
from fairlead.zones.engines.api import errors as module


def test_an_error_prints_its_sentence_its_code_its_fields_and_its_remedy() -> None:
    error = StoreError(2102, remedy="Shorten the key.", key_bytes=600, key_bytes_max=511)
    assert str(error) == "key length exceeds limit (2102, key_bytes=600, key_bytes_max=511). Shorten the key."
    assert str(StoreError(1020)) == "transaction not committed due to conflict with another transaction (1020)"


def test_an_unavailable_store_is_represented_by_its_reason() -> None:
    assert repr(StoreUnavailable("the disk failed", remedy="Mount it.")) == "StoreUnavailable('the disk failed')"


def test_every_code_has_a_sentence() -> None:
    codes = {value for name, value in vars(module).items() if name.isupper() and isinstance(value, int)}
    assert codes == set(module.DESCRIPTIONS)
    assert len(set(module.DESCRIPTIONS.values())) == len(codes)


def test_errors_survive_the_way_to_another_process() -> None:
    for error in (
        StoreError(1020),
        StoreError(2102, remedy="Shorten the key.", key=b"\x00"),
        StoreUnavailable("the disk failed", remedy="See the cause.", path="/data"),
        module.StoreFull("/data"),
    ):
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error)
        assert (again.code, again.fields, again.remedy, str(again)) == (
            error.code,
            error.fields,
            error.remedy,
            str(error),
        )
