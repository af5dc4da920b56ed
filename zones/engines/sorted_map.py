"""An immutable sorted map: an update makes a new one that shares all but a path with the old.

That is all the memory engine needs to be multi-version: a snapshot is a reference to a root, reading an old version
costs what reading the newest does, and versions that nobody refers to are freed by Python.

The tree is a B+ tree of tuples of parallel lists, never changed once they are reachable from a root.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final

from zones.engines.database import Pair

FANOUT_MAX: Final = 64  # Children of a node. More make reads cheaper, fewer make updates cheaper.


class _Leaf:
    __slots__ = ("keys", "values")

    def __init__(self, keys: list[bytes], values: list[bytes]) -> None:
        self.keys = keys
        self.values = values


class _Branch:
    """`firsts[i]` is at most every key of `children[i]`; the first of them does not matter."""

    __slots__ = ("children", "firsts")

    def __init__(self, firsts: list[bytes], children: list[_Node]) -> None:
        self.firsts = firsts
        self.children = children


_Node = _Leaf | _Branch
EMPTY: Final = _Leaf([], [])
Root = _Node


def get(root: Root, key: bytes) -> bytes | None:
    """Return the value of `key`, or None."""
    node = root
    while type(node) is _Branch:
        node = node.children[bisect_right(node.firsts, key, 1) - 1]
    assert type(node) is _Leaf
    keys = node.keys
    index = bisect_left(keys, key)
    if index < len(keys) and keys[index] == key:
        return node.values[index]
    return None


def update(root: Root, changes: list[tuple[bytes, bytes | None]]) -> Root:
    """Return the map with the changes made: a value is set, None removes the key.

    Args:
      root: the map.
      changes: in key order, each key once. A commit's are applied in one go, so that they share the copied paths.
    """
    parts = _update(root, changes, 0, len(changes))
    while len(parts) > 1:
        parts = _branches([first for first, _ in parts], [node for _, node in parts])
    return _trimmed(parts[0][1] if parts else None)


def remove_range(root: Root, begin: bytes, end: bytes) -> Root:
    """Return the map without the keys of [begin, end), begin <= end."""
    assert begin <= end
    return _trimmed(_remove(root, begin, end))


def scan(node: Root, begin: bytes, end: bytes, reverse: bool) -> Iterator[Pair]:
    """Yield the pairs of [begin, end) in order, or in reverse order."""
    if type(node) is _Leaf:
        low, high = bisect_left(node.keys, begin), bisect_left(node.keys, end)
        pairs = zip(node.keys[low:high], node.values[low:high], strict=True)
        yield from reversed(list(pairs)) if reverse else pairs
        return
    assert type(node) is _Branch
    low, high = bisect_right(node.firsts, begin, 1) - 1, bisect_left(node.firsts, end, 1)
    children = node.children[low:high]
    for child in reversed(children) if reverse else children:
        yield from scan(child, begin, end, reverse)


_Parts = list[tuple[bytes, _Node]]  # What replaces a node, each with the key that separates it from the one before.


def _update(node: _Node, changes: list[tuple[bytes, bytes | None]], low: int, high: int) -> _Parts:
    """Return what replaces `node` after the changes[low:high], all of which belong in it; [] if nothing is left."""
    if type(node) is _Leaf:
        keys, values = node.keys.copy(), node.values.copy()
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
        return [(keys[part][0], _Leaf(keys[part], values[part])) for part in _halves(len(keys))]
    assert type(node) is _Branch
    firsts: list[bytes] = []
    children: list[_Node] = []
    done = 0
    while low < high:
        index = bisect_right(node.firsts, changes[low][0], 1) - 1
        end = high
        if index + 1 < len(node.firsts):
            end = bisect_left(changes, (node.firsts[index + 1],), low, high)
        firsts += node.firsts[done:index]
        children += node.children[done:index]
        for number, (first, part) in enumerate(_update(node.children[index], changes, low, end)):
            firsts.append(first if number else node.firsts[index])
            children.append(part)
        done, low = index + 1, end
    return _branches(firsts + node.firsts[done:], children + node.children[done:])


def _branches(firsts: list[bytes], children: list[_Node]) -> _Parts:
    return [(firsts[part][0], _Branch(firsts[part], children[part])) for part in _halves(len(children))]


def _halves(length: int) -> list[slice]:
    """Return slices of up to `FANOUT_MAX`, or, if that does not do, of half as many, so that there is room to grow."""
    if length <= FANOUT_MAX:
        return [slice(0, length)] if length else []
    half = FANOUT_MAX // 2
    return [slice(start, start + half) for start in range(0, length, half)]


def _trimmed(node: _Node | None) -> Root:
    while type(node) is _Branch and len(node.children) == 1:
        node = node.children[0]
    return EMPTY if node is None else node


def _remove(node: _Node, begin: bytes, end: bytes) -> _Node | None:
    """Return what replaces `node`; None if nothing is left of it, `node` itself if nothing was in the range."""
    if type(node) is _Leaf:
        low, high = bisect_left(node.keys, begin), bisect_left(node.keys, end)
        if low == high:
            return node
        keys = node.keys[:low] + node.keys[high:]
        return _Leaf(keys, node.values[:low] + node.values[high:]) if keys else None
    assert type(node) is _Branch
    low, high = bisect_right(node.firsts, begin, 1) - 1, bisect_left(node.firsts, end, 1)
    kept = [(node.firsts[i], child) for i in range(low, high) if (child := _remove(node.children[i], begin, end))]
    firsts = node.firsts[:low] + [first for first, _ in kept] + node.firsts[high:]
    children = node.children[:low] + [child for _, child in kept] + node.children[high:]
    return _Branch(firsts, children) if children else None
