"""An immutable sorted map: an update makes a new map that shares all but a few paths with the old one.

So a snapshot is a reference to a map. Reading an old version costs as much as reading the newest, and Python frees
versions without references.

The map is a B+ tree of plain tuples. Python's garbage collector soon untracks tuples of bytes and of such tuples; other
objects it would traverse with every stored key, again and again.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Any, Final

from fairlead.zones.engines.api.database import Pair

FANOUT_MAX: Final = 64  # Children of a node. More make reads cheaper, fewer make updates cheaper.

# A leaf is (keys, values), a branch (firsts, children): firsts[i] is at most every key of children[i], and the first of
# them does not matter. Leaves are `height` branches below the root.
_Node = tuple[tuple[bytes, ...], tuple[Any, ...]]
Map = tuple[int, _Node]
Change = tuple[bytes, bytes | None]

EMPTY: Final[Map] = (0, ((), ()))

_Parts = list[tuple[bytes, _Node]]  # What replaces a node, each with the key that separates it from the one before.


def get(root: Map, key: bytes) -> bytes | None:
    """Return the value of `key`, or None."""
    height, (keys, values) = root
    for _ in range(height):
        keys, values = values[bisect_right(keys, key, 1) - 1]
    index = bisect_left(keys, key)
    if index < len(keys) and keys[index] == key:
        value: bytes = values[index]
        return value
    return None


def scan(root: Map, begin: bytes, end: bytes, reverse: bool) -> Iterator[Pair]:
    """Yield the pairs of [begin, end) in order, or in reverse order."""
    return _scan(root[0], root[1], begin, end, reverse)


def update(root: Map, changes: list[Change]) -> Map:
    """Return the map with the changes made: a value is set, None removes the key.

    Args:
      root: the map.
      changes: in key order, each key once. A commit's are applied in one go, so that they share the copied paths.
    """
    height, node = root
    if not changes:
        return root
    return _grown(height, _update(height, node, changes, 0, len(changes)))


def remove_range(root: Map, begin: bytes, end: bytes) -> Map:
    """Return the map without the keys of [begin, end), begin < end."""
    assert begin < end
    height, node = root
    return _grown(height, _remove(height, node, begin, end))


def _scan(height: int, node: _Node, begin: bytes, end: bytes, reverse: bool) -> Iterator[Pair]:
    keys, values = node
    if not height:
        low, high = bisect_left(keys, begin), bisect_left(keys, end)
        pairs = zip(keys[low:high], values[low:high], strict=True)
        yield from reversed(list(pairs)) if reverse else pairs
        return
    children = values[bisect_right(keys, begin, 1) - 1 : bisect_left(keys, end, 1)]
    for child in reversed(children) if reverse else children:
        yield from _scan(height - 1, child, begin, end, reverse)


def _update(height: int, node: _Node, changes: list[Change], low: int, high: int) -> _Parts:
    """Return the nodes that replace `node` after changes[low:high], which all belong in it; [] if it is empty."""
    keys, values = list(node[0]), list(node[1])
    if not height:
        for key, value in changes[low:high]:
            index = bisect_left(keys, key)
            present = index < len(keys) and keys[index] == key
            if value is None:
                if present:
                    del keys[index], values[index]
            elif present:
                values[index] = value
            else:
                keys.insert(index, key)
                values.insert(index, value)
        return _split(keys, values)
    # From the last child to the first, so that the positions of the remaining children do not change.
    while low < high:
        index = bisect_right(keys, changes[high - 1][0], 1) - 1
        start = bisect_left(changes, (keys[index],), low, high) if index else low
        parts = _update(height - 1, values[index], changes, start, high)
        if len(parts) == 1:
            values[index] = parts[0][1]
        else:
            keys[index : index + 1] = [first if number else keys[index] for number, (first, _) in enumerate(parts)]
            values[index : index + 1] = [part for _, part in parts]
        high = start
    return _split(keys, values)


def _remove(height: int, node: _Node, begin: bytes, end: bytes) -> _Parts:
    """Return the nodes that replace `node` without [begin, end)."""
    keys, values = node
    if not height:
        low, high = bisect_left(keys, begin), bisect_left(keys, end)
        return _split([*keys[:low], *keys[high:]], [*values[:low], *values[high:]])
    low, high = bisect_right(keys, begin, 1) - 1, bisect_left(keys, end, 1)
    # The two outermost children may keep a part; those between them are removed.
    kept = [
        (keys[index], part)
        for index in sorted({low, high - 1})
        for _, part in _remove(height - 1, values[index], begin, end)
    ]
    firsts, children = [first for first, _ in kept], [part for _, part in kept]
    return _split([*keys[:low], *firsts, *keys[high:]], [*values[:low], *children, *values[high:]])


def _split(keys: list[bytes], values: list[Any]) -> _Parts:
    """Return one node; half-full nodes if there are too many keys, so that each can grow; [] without keys."""
    length = len(keys)
    if length <= FANOUT_MAX:
        return [(keys[0], (tuple(keys), tuple(values)))] if length else []
    half = FANOUT_MAX // 2
    starts = range(0, length, half)
    return [(keys[at], (tuple(keys[at : at + half]), tuple(values[at : at + half]))) for at in starts]


def _grown(height: int, parts: _Parts) -> Map:
    """Return the map of the nodes that replace a root: higher after a split, lower with a single child."""
    while len(parts) > 1:
        parts = _split([first for first, _ in parts], [node for _, node in parts])
        height += 1
    if not parts:
        return EMPTY
    node = parts[0][1]
    while height and len(node[1]) == 1:
        node = node[1][0]
        height -= 1
    return height, node
