"""Which consumer owns which partition of a shard's top-level queue, from the list of live sessions alone.

Each pointer has a position: the parts follow each other, and within its part the hash of its id decides. The sessions,
in the order of their ids, divide the positions into equal ranges. So consumers that read the same list decide the same,
and no two partitions overlap. The partitions are equal for any number of consumers: of sixteen parts, each of five
consumers has three whole ones and a fifth of another. With more consumers than parts several share a part, and each
reads past the pointers of the others. So a shard should have as many parts as it will have consumers.

A consumer shares the pointers only with consumers that know all of its kinds. So each pointer has an owner for each
kind that a live consumer knows.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple
from zlib import crc32

from fairlead.zones.top_level.pointers import PointerRef

HASH_SPACE = 1 << 32  # Of a part.


class Partition(NamedTuple):
    """A range of positions, from `begin` on, up to and without `end`."""

    begin: int
    end: int

    @property
    def parts(self) -> range:
        """The parts that it covers; the first and the last perhaps not as a whole."""
        return range(self.begin // HASH_SPACE, -(-self.end // HASH_SPACE))

    def contains_part(self, part: int) -> bool:
        """Say whether it covers a whole part."""
        return self.begin <= part * HASH_SPACE and (part + 1) * HASH_SPACE <= self.end

    def contains(self, ref: PointerRef) -> bool:
        """Say whether a pointer lies in it."""
        return self.contains_part(ref.part) or self.begin <= ref.part * HASH_SPACE + crc32(ref.id) < self.end


NO_PARTITION = Partition(0, 0)


class Session(NamedTuple):
    """A consumer's session on a shard, as its scanner needs it: its partition, and until when it owns that.

    After that time, by the consumer's own clock, others have divided its partition among them. `full`: the partitions
    of consumers without capacity.
    """

    partition: Partition
    until_us: int
    full: tuple[Partition, ...] = ()


def has_session_changed(known: Session | None, current: Session | None, now_us: int) -> bool:
    """Say whether a scan with the current session may find what one with the known session could not."""
    if known is None or current is None or now_us >= known.until_us:
        return True
    return (known.partition, known.full) != (current.partition, current.full)


def divide(kinds: Mapping[bytes, Collection[str]], part_count: int) -> dict[bytes, Partition]:
    """Return the partition of each consumer. `kinds`: those that each live consumer knows, by its id."""
    alike: dict[frozenset[str], list[bytes]] = {}
    for consumer_id, known in kinds.items():
        alike.setdefault(frozenset(known), []).append(consumer_id)
    found, whole = {}, part_count * HASH_SPACE
    for mine, members in alike.items():
        sessions = sorted(each for known, some in alike.items() if mine <= known for each in some)
        numbers = {each: number for number, each in enumerate(sessions)}
        for each in members:
            number = numbers[each]
            found[each] = Partition(number * whole // len(sessions), (number + 1) * whole // len(sessions))
    return found


def merged(partitions: Iterable[Partition]) -> tuple[Partition, ...]:
    """Return the union of partitions, as few ranges in order."""
    found: list[Partition] = []
    for partition in sorted(partitions):
        if found and partition.begin <= found[-1].end:
            found[-1] = Partition(found[-1].begin, max(found[-1].end, partition.end))
        else:
            found.append(partition)
    return tuple(found)
