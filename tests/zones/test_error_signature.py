"""Errors that differ only in names, numbers and ids have one signature."""

from __future__ import annotations

import time

import pytest

from fairlead.zones.queue.dead_letter_search import SIGNATURE_CHARACTERS, error_signature


@pytest.mark.parametrize(
    ("error", "signature"),
    [
        ("ValueError: no order 17", "ValueError: no order …"),
        ("ValueError: no order 18\nand a second line", "ValueError: no order …"),
        ("KeyError: 'order-7'", "KeyError: …"),
        ('json.JSONDecodeError: expecting "," at 5.', "json.JSONDecodeError: expecting … at …."),
        ("S3Error: bucket b2: 503", "S3Error: bucket …: …"),
        ("TimeoutError: 10.5 s, then 3e-2 s", "TimeoutError: … s, then … s"),
        ("LookupError: 9f2c-11ee of café", "LookupError: … of café"),
        ("its worker died 3 times", "its worker died … times"),
        ("ValueError", "ValueError"),
        ("", "(no text)"),
        ("ValueError: a\tb\rc\x00 d", "ValueError: a b c d"),
    ],
)
def test_what_varies_is_left_out_and_the_class_stays(error: str, signature: str) -> None:
    assert error_signature(error) == signature


@pytest.mark.parametrize("text", ["1" * 10_000, "'" * 10_000, "a1:" * 5_000, '"x' * 5_000, "f" * 10_000 + "G"])
def test_a_signature_is_short_and_costs_little_whatever_the_error(text: str) -> None:
    started_s = time.perf_counter()
    for _ in range(100):
        assert len(error_signature(f"ValueError: {text}")) <= SIGNATURE_CHARACTERS
    assert time.perf_counter() - started_s < 1.0
