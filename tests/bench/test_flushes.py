"""How long a disk takes to make a page durable, beside a load."""

from pathlib import Path

from bench.flushes import watched
from bench.machine import fsync_ms


def test_flushes_beside_a_load_are_known_at_its_end_and_no_file_is_left(tmp_path: Path) -> None:
    with watched(tmp_path) as flushes:
        fsync_ms(tmp_path)
        assert flushes == []
    assert flushes
    assert all(each.took_ms > 0 for each in flushes)
    assert [each.began_s for each in flushes] == sorted(each.began_s for each in flushes)
    assert list(tmp_path.iterdir()) == []
