"""The directory as a sequential object: people by their numbers; no two have one key.

Each write has a tag of its own, so that a reader knows which write it has seen. What a refused write says is a read: it
is right if there is a moment at which it was so.
"""

from __future__ import annotations

from typing import NamedTuple

from fairlead.simulation.linearizability.history import Model, Operation

Keys = tuple[int, ...]


class Person(NamedTuple):
    """What the directory has of one person: the tag of the last write, and the keys."""

    tag: str
    keys: Keys


People = tuple[Person | None, ...]  # by number


class Create(NamedTuple):
    """Create a person; the answer: True. If it is refused, the call is one of the reads below.

    `shared`: those of the keys that others may have, too: their index is not complete.
    """

    number: int
    keys: Keys
    tag: str
    shared: Keys = ()

    def on(self, state: People) -> tuple[bool, People]:
        """See `Call`."""
        if state[self.number] is not None or owners(state, self.number, self.keys, self.shared):
            return False, state
        return True, with_person(state, self.number, Person(self.tag, self.keys))


class Update(NamedTuple):
    """Give a person keys and a tag, if the tag is as read; the answer: True. `shared`: see `Create`."""

    number: int
    read: str
    keys: Keys
    tag: str
    shared: Keys = ()

    def on(self, state: People) -> tuple[bool, People]:
        """See `Call`."""
        person = state[self.number]
        if person is None or person.tag != self.read or owners(state, self.number, self.keys, self.shared):
            return False, state
        return True, with_person(state, self.number, Person(self.tag, self.keys))


class Delete(NamedTuple):
    """Delete a person, if the tag is as read; the answer: True."""

    number: int
    read: str

    def on(self, state: People) -> tuple[bool, People]:
        """See `Call`."""
        person = state[self.number]
        if person is None or person.tag != self.read:
            return False, state
        return True, with_person(state, self.number, None)


class Get(NamedTuple):
    """Read a person by number; the answer: the person, or None."""

    number: int

    def on(self, state: People) -> tuple[Person | None, People]:
        """See `Call`."""
        return state[self.number], state


class Find(NamedTuple):
    """Look for a person by a key; the answer: the number and the person, or None."""

    key: int

    def on(self, state: People) -> tuple[tuple[int, Person] | None, People]:
        """See `Call`."""
        for number, person in enumerate(state):
            if person is not None and self.key in person.keys:
                return (number, person), state
        return None, state


class IsThere(NamedTuple):
    """A create was refused, because there is such a person; the answer: True."""

    number: int

    def on(self, state: People) -> tuple[bool, People]:
        """See `Call`."""
        return state[self.number] is not None, state


class IsTaken(NamedTuple):
    """A write was refused, because another person has one of the keys; the answer: True."""

    number: int
    keys: Keys

    def on(self, state: People) -> tuple[bool, People]:
        """See `Call`."""
        return owners(state, self.number, self.keys), state


class IsChanged(NamedTuple):
    """A write was refused, because the person is not as read; the answer: True."""

    number: int
    read: str

    def on(self, state: People) -> tuple[bool, People]:
        """See `Call`."""
        person = state[self.number]
        return person is None or person.tag != self.read, state


READS = (Get, Find, IsThere, IsTaken, IsChanged)


def owners(state: People, number: int, keys: Keys, shared: Keys = ()) -> bool:
    """Say whether somebody else has one of the keys, but for those that may be shared."""
    own = set(keys) - set(shared)
    return any(person is not None and other != number and own & set(person.keys) for other, person in enumerate(state))


def with_person(state: People, number: int, person: Person | None) -> People:
    """Return the directory with another person under a number."""
    return (*state[:number], person, *state[number + 1 :])


def directory_of(people: int) -> Model[People]:
    """Return the model of a directory with so many numbers, of which nobody is there."""
    return Model((None,) * people, changes_nothing)


def changes_nothing(operation: Operation) -> bool:
    """Whether an operation that happened has only read."""
    return isinstance(operation.call, READS)
