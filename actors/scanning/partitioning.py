"""What part of a shard's top-level queue is whose, decided from the list of live sessions alone.

Each pointer has a place on a line: the parts follow each other, and within its part it stands where the hash of its id
says. The sessions, in the order of their ids, cut the line into equal stretches. So everybody who sees the same list
decides the same, no two stretches overlap, and they are equally long whatever the numbers: of sixteen parts, each of
five consumers has three whole ones and a fifth of another. With more consumers than parts several share a part, and
each reads past what is the others'; so a shard should have as many parts as it will have consumers.

A consumer divides among those who know every kind that it knows. What is another's by its account is then looked at by
one who can run all that it could itself: by that one, or by whom that one leaves it to, who knows still more. So for
each pointer, and each kind that anybody knows, a consumer that knows the kind has the pointer in its own stretch.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple
from zlib import crc32

from fairlead.zones.top_level.pointers import PointerRef

HASH_SPACE = 1 << 32  # Of a part.


class Partition(NamedTuple):
    """A stretch of the line, from place `begin` on, up to and without `end`."""

    begin: int
    end: int

    @property
    def parts(self) -> range:
        """The parts in which it lies, the first and the last perhaps not whole."""
        return range(self.begin // HASH_SPACE, -(-self.end // HASH_SPACE))

    def contains_part(self, part: int) -> bool:
        """Say whether a part lies in it as a whole."""
        return self.begin <= part * HASH_SPACE and (part + 1) * HASH_SPACE <= self.end

    def contains(self, ref: PointerRef) -> bool:
        """Say whether a pointer lies in it."""
        return self.contains_part(ref.part) or self.begin <= ref.part * HASH_SPACE + crc32(ref.id) < self.end


NO_PARTITION = Partition(0, 0)


class Session(NamedTuple):
    """A consumer's session on a shard, as its scanner needs it: what is its own, and until when it may count on it.

    Once its time is over, by the consumer's own clock, others have divided its stretch among them. `full`: what belongs
    to others who have no room.
    """

    partition: Partition
    until_us: int
    full: tuple[Partition, ...] = ()


def has_session_changed(known: Session | None, current: Session | None, now_us: int) -> bool:
    """Say whether a scan by one session may find what a scan by the session before, known until now, could not."""
    if known is None or current is None or now_us >= known.until_us:
        return True
    return (known.partition, known.full) != (current.partition, current.full)


def divide(kinds: Mapping[bytes, Collection[str]], part_count: int) -> dict[bytes, Partition]:
    """Return which stretch is whose own. `kinds`: those that each live consumer knows, by its id."""
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
    """Return what lies in any of these, in as few stretches as can be, in their order."""
    found: list[Partition] = []
    for partition in sorted(partitions):
        if found and partition.begin <= found[-1].end:
            found[-1] = Partition(found[-1].begin, max(found[-1].end, partition.end))
        else:
            found.append(partition)
    return tuple(found)
