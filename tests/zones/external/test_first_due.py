"""When an item of an external store could run first, from which the time of `give_up_after` counts."""

from __future__ import annotations

from fairlead.zones.external.first_due import note_first_due
from fairlead.zones.records import ItemRecord

NOW_US = 1_700_000_000_000_000
MINUTE_US = 60_000_000


def noted(*, waited_us: int, **record: object) -> ItemRecord:
    """Return the record of an item that was enqueued a minute ago."""
    made = ItemRecord("mail", b"", 100, 0, NOW_US - MINUTE_US, **record)  # type: ignore[arg-type]
    note_first_due(made, waited_us=waited_us, now_us=NOW_US)
    return made


def test_an_item_without_a_delay_could_run_once_it_was_enqueued() -> None:
    assert noted(waited_us=MINUTE_US).runnable_us == NOW_US - MINUTE_US


def test_a_delayed_item_could_run_once_its_delay_had_ended() -> None:
    assert noted(waited_us=5).runnable_us == NOW_US - 5


def test_an_item_that_waits_for_its_next_attempt_keeps_what_was_noted_before() -> None:
    assert noted(waited_us=5, error_count=1, last_error="no").runnable_us == NOW_US - MINUTE_US
    assert noted(waited_us=5, last_error="the store refused").runnable_us == NOW_US - MINUTE_US
    assert noted(waited_us=5, error_count=1, delayed_until_us=NOW_US - 7).runnable_us == NOW_US - 7
