"""A fleet's log is text: no record controls the terminal, or looks like another record."""

from __future__ import annotations

import logging
import sys

import pytest

from fairlead.telemetry.logs import FORMAT, TextFormatter


def logged(message: str, *args: object, error: BaseException | None = None) -> str:
    """Return a record as a fleet's log shows it."""
    info = None if error is None else (type(error), error, error.__traceback__)
    record = logging.LogRecord("fairlead.worker", logging.WARNING, __file__, 1, message, args, info)
    record.job_ids = ""
    return TextFormatter(FORMAT).format(record)


def test_the_format_of_a_line_is_unchanged() -> None:
    assert logged("handler of %s failed: Größe 5 €", "mail").endswith(
        " WARNING fairlead.worker: handler of mail failed: Größe 5 €"
    )


@pytest.mark.parametrize(
    "text, shown",
    [
        ("\x1b]0;title\x07\x1b[2J", "\\x1b]0;title\\x07\\x1b[2J"),
        ("one\rtwo", "one\\rtwo"),
        ("left \u202eright", "left \\u202eright"),
        ("a\ttable", "a\ttable"),
    ],
)
def test_control_characters_are_spelled_out(text: str, shown: str) -> None:
    assert logged("%s", text).endswith(f": {shown}")


def test_further_lines_are_indented_so_that_none_looks_like_a_record() -> None:
    forged = "2026-01-01 00:00:00,000 ERROR fairlead: forged"
    lines = logged("no\n%s", forged).splitlines()
    assert lines[0].endswith(": no")
    assert lines[1:] == [f"    {forged}"]


def test_a_traceback_is_shown_in_lines_and_without_control_characters() -> None:
    try:
        raise ValueError("\x1b[2J\n2026-01-01 00:00:00,000 ERROR fairlead: forged")
    except ValueError as caught:
        error = caught
    first, *rest = logged("it broke off", error=error).splitlines()
    assert first.endswith(": it broke off")
    assert rest[0] == "    Traceback (most recent call last):"
    assert rest[-2:] == ["    ValueError: \\x1b[2J", "    2026-01-01 00:00:00,000 ERROR fairlead: forged"]


def test_a_fleet_logs_in_this_format(monkeypatch: pytest.MonkeyPatch) -> None:
    root = logging.RootLogger(logging.WARNING)
    monkeypatch.setattr(logging, "root", root)
    from fairlead.telemetry.logs import log_to_stderr

    log_to_stderr("info")
    (handler,) = root.handlers
    assert isinstance(handler, logging.StreamHandler)
    assert (handler.stream, root.level) == (sys.stderr, logging.INFO)
    assert isinstance(handler.formatter, TextFormatter)
