"""Dividing a shard's top-level queue among the live sessions: all of it is somebody's, and nobody has more of it."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from fairlead.actors.scanning.partitioning import HASH_SPACE, NO_PARTITION, Partition, divide, merged
from fairlead.zones.top_level.pointers import PointerRef


def ids(count: int) -> list[bytes]:
    return [bytes([number]) for number in range(count)]


def ref(random: Random, part_count: int) -> PointerRef:
    return PointerRef(random.randrange(part_count), random.randbytes(16), 0, 100)


@pytest.mark.parametrize("consumers", [1, 2, 3, 5, 16, 40])
@pytest.mark.parametrize("part_count", [1, 4, 16])
def test_equal_consumers_have_equal_stretches_that_follow_each_other(consumers: int, part_count: int) -> None:
    found = sorted(divide({each: ["mail"] for each in ids(consumers)}, part_count).values())
    assert found[0].begin == 0
    assert found[-1].end == part_count * HASH_SPACE
    assert all(before.end == after.begin for before, after in pairwise(found))
    lengths = [partition.end - partition.begin for partition in found]
    assert max(lengths) - min(lengths) <= 1


@pytest.mark.parametrize("consumers", [1, 3, 5, 40])
def test_each_pointer_is_ones_own_and_each_consumer_has_as_many(consumers: int) -> None:
    random, part_count = Random(1), 4
    found = divide({each: ["mail"] for each in ids(consumers)}, part_count)
    owners = [
        [each for each, partition in found.items() if partition.contains(pointer)]
        for pointer in (ref(random, part_count) for _ in range(200 * consumers))
    ]
    assert all(len(each) == 1 for each in owners)
    counts = [sum(each == [consumer] for each in owners) for consumer in found]
    assert 100 < min(counts) <= max(counts) < 300


def test_everybody_decides_the_same_in_whichever_order_the_list_comes() -> None:
    kinds = {each: ["mail"] for each in ids(5)}
    assert divide(kinds, 16) == divide(dict(reversed(kinds.items())), 16)


def test_a_stretch_reads_only_the_parts_in_which_it_lies() -> None:
    partition = Partition(HASH_SPACE + 7, 3 * HASH_SPACE)
    assert list(partition.parts) == [1, 2]
    assert [part for part in range(4) if partition.contains_part(part)] == [2]
    assert list(NO_PARTITION.parts) == []


def test_a_consumer_that_knows_more_kinds_than_the_others_divides_with_none() -> None:
    """During an upgrade: the old ones leave a part to it, and it looks at everything for what only it knows."""
    old, older, new = ids(3)
    found = divide({old: ["mail"], older: ["mail"], new: ["fax", "mail"]}, 3)
    assert found[new] == Partition(0, 3 * HASH_SPACE)
    assert found[old] == Partition(0, HASH_SPACE)
    assert found[older] == Partition(HASH_SPACE, 2 * HASH_SPACE)


def test_two_fleets_that_know_different_kinds_divide_each_by_itself() -> None:
    first, second, third = ids(3)
    found = divide({first: ["mail"], second: ["fax"], third: ["fax"]}, 2)
    assert found == {
        first: Partition(0, 2 * HASH_SPACE),
        second: Partition(0, HASH_SPACE),
        third: Partition(HASH_SPACE, 2 * HASH_SPACE),
    }


@pytest.mark.parametrize("seed", range(50))
def test_each_kind_at_each_position_has_an_owner_that_knows_it(seed: int) -> None:
    """The heart of it: what nobody scans who could run it would wait for ever."""
    random, names = Random(seed), ["mail", "fax", "index", "charge"]
    kinds = {each: random.sample(names, random.randint(0, 4)) for each in ids(random.randint(1, 8))}
    found = divide(kinds, 4)
    for pointer in (ref(random, 4) for _ in range(100)):
        looking = [each for each, partition in found.items() if partition.contains(pointer)]
        assert {name for known in kinds.values() for name in known} == {
            name for each in looking for name in kinds[each]
        }


def test_what_lies_in_any_of_several_stretches_is_said_in_as_few_as_can_be() -> None:
    """Of a thousand consumers nearly all may be full."""
    assert merged([]) == ()
    assert merged([Partition(5, 7), Partition(0, 2), Partition(2, 4), Partition(3, 4)]) == (
        Partition(0, 4),
        Partition(5, 7),
    )
