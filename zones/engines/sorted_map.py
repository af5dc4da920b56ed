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

FANOUT_MAX: Final = 64  # Twice what a node is split into; measured on point reads against path copies.


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


def put(root: Root, key: bytes, value: bytes) -> Root:
    """Return the map with `key` set."""
    parts = _put(root, key, value)
    if len(parts) == 1:
        return parts[0][1]
    return _Branch([first for first, _ in parts], [node for _, node in parts])


def remove(root: Root, key: bytes) -> Root:
    """Return the map without `key`."""
    return remove_range(root, key, key + b"\x00")


def remove_range(root: Root, begin: bytes, end: bytes) -> Root:
    """Return the map without the keys of [begin, end), begin <= end."""
    assert begin <= end
    node = _remove(root, begin, end)
    while type(node) is _Branch and len(node.children) == 1:
        node = node.children[0]
    return EMPTY if node is None else node


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


def _put(node: _Node, key: bytes, value: bytes) -> list[tuple[bytes, _Node]]:
    """Return what replaces `node`: one node, or two with the first key that separates them."""
    if type(node) is _Leaf:
        index = bisect_left(node.keys, key)
        values = node.values.copy()
        if index < len(node.keys) and node.keys[index] == key:
            values[index] = value
            return [(b"", _Leaf(node.keys, values))]
        keys = node.keys.copy()
        keys.insert(index, key)
        values.insert(index, value)
        if len(keys) <= FANOUT_MAX:
            return [(b"", _Leaf(keys, values))]
        half = len(keys) // 2
        return [(b"", _Leaf(keys[:half], values[:half])), (keys[half], _Leaf(keys[half:], values[half:]))]
    assert type(node) is _Branch
    index = bisect_right(node.firsts, key, 1) - 1
    parts = _put(node.children[index], key, value)
    children = node.children.copy()
    children[index] = parts[0][1]
    if len(parts) == 1:
        return [(b"", _Branch(node.firsts, children))]
    firsts = node.firsts.copy()
    firsts.insert(index + 1, parts[1][0])
    children.insert(index + 1, parts[1][1])
    if len(children) <= FANOUT_MAX:
        return [(b"", _Branch(firsts, children))]
    half = len(children) // 2
    return [(b"", _Branch(firsts[:half], children[:half])), (firsts[half], _Branch(firsts[half:], children[half:]))]


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
