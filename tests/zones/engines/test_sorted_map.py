"""The immutable sorted map, against a dictionary."""

from __future__ import annotations

import random

import pytest

from fairlead.zones.engines.memory import sorted_map


def pairs(root: sorted_map.Map) -> list[tuple[bytes, bytes]]:
    return list(sorted_map.scan(root, b"", b"\xff", False))


@pytest.mark.parametrize("seed", range(5))
def test_any_sequence_of_changes_leaves_what_a_dictionary_holds(seed: int) -> None:
    draw = random.Random(seed)
    root: sorted_map.Map = sorted_map.EMPTY
    model: dict[bytes, bytes] = {}
    kept: list[tuple[sorted_map.Map, dict[bytes, bytes]]] = []
    for step in range(6_000):
        key = str(draw.randrange(3_000)).encode()
        if draw.random() < 0.6:
            root = sorted_map.update(root, [(key, str(step).encode())])
            model[key] = str(step).encode()
        elif draw.random() < 0.95:
            root = sorted_map.update(root, [(key, None)])
            model.pop(key, None)
        else:
            key, end = sorted((key, str(draw.randrange(3_000)).encode() + b"!"))
            root = sorted_map.remove_range(root, key, end)
            model = {k: v for k, v in model.items() if not key <= k < end}
        if step % 1_000 == 0:
            kept.append((root, dict(model)))
    kept.append((root, model))
    for version, held in kept:  # Old versions are as they were.
        assert dict(pairs(version)) == held
        assert pairs(version) == sorted(held.items())
        assert all(sorted_map.get(version, key) == held.get(key) for key in map(str.encode, map(str, range(3_000))))


@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_keeps_to_its_bounds(reverse: bool) -> None:
    root: sorted_map.Map = sorted_map.EMPTY
    keys = [f"{number:04}".encode() for number in range(1_000)]
    for key in random.Random(1).sample(keys, len(keys)):
        root = sorted_map.update(root, [(key, b"")])
    for begin, end in ((0, 1_000), (0, 1), (10, 11), (63, 129), (500, 500), (999, 1_000)):
        bounds = keys[begin], keys[end] if end < len(keys) else b"\xff"
        found = [key for key, _ in sorted_map.scan(root, *bounds, reverse)]
        assert found == (keys[begin:end][::-1] if reverse else keys[begin:end])


def test_everything_can_be_removed() -> None:
    root: sorted_map.Map = sorted_map.EMPTY
    for number in range(500):
        root = sorted_map.update(root, [(str(number).encode(), b"")])
    assert sorted_map.remove_range(root, b"", b"\xff") is sorted_map.EMPTY
    for number in range(500):
        root = sorted_map.update(root, [(str(number).encode(), None)])
    assert root is sorted_map.EMPTY


def test_many_changes_at_once_are_the_same_as_one_after_the_other() -> None:
    draw = random.Random(1)
    at_once: sorted_map.Map = sorted_map.EMPTY
    in_turn: sorted_map.Map = sorted_map.EMPTY
    for size in (1, 1_000, 3, 300, 2_000, 0, 50):
        keys = sorted(str(number).encode() for number in draw.sample(range(5_000), size))
        changes = [(key, None if draw.random() < 0.4 else str(size).encode()) for key in keys]
        at_once = sorted_map.update(at_once, changes)
        for change in changes:
            in_turn = sorted_map.update(in_turn, [change])
        assert pairs(at_once) == pairs(in_turn)
