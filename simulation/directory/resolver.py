"""A resolver: lets people give up the keys that others have, too, as `resolve` does for a user; and asks all shards."""

from __future__ import annotations

from typing import Any

from fairlead.records.accesses import Op
from fairlead.records.definition import TypeRecord
from fairlead.records.errors import Changed, IndexUnavailable, Interrupted
from fairlead.records.on_shards.scatter import Scatter
from fairlead.simulation.directory.clerk import Clerk
from fairlead.simulation.directory.model import Find
from fairlead.simulation.directory.people import name_of, number_of, person_of
from fairlead.simulation.linearizability.history import RecordedAnswer


class Resolver(Clerk):
    """A clerk that looks at everybody once."""

    def resolve(self) -> None:
        """Look at everybody."""
        for number in range(self._habits.people):
            while not self._give_up_shared(number):
                continue

    def ask_all_shards(self) -> None:
        """Look for everybody by each key on all shards, as while index shards are away."""
        for key in range(self._habits.keys):
            attempt = self._recorder.begin(self._host.name)
            try:
                found = Scatter(self._shards, self._locations, self._in_any_order).find(self._index_key(key))
            except IndexUnavailable:  # The index of badges is not there, or people share some.
                self._recorder.drop(attempt)
                continue
            answer = None if found is None else (number_of(found[0]), person_of(found[1]))
            attempt.answers = [RecordedAnswer(Find(key), answer)]
            self._recorder.end(attempt)

    def _give_up_shared(self, number: int) -> bool:
        """Write a person without the keys that others have; False: something else has written the person meanwhile."""
        read = self._read_one(number)
        if read is None or not read.violations:
            return True
        self._host.world.note(f"{name_of(number)} gives up shared keys")
        person = person_of(read)
        keys = tuple(key for key in person.keys if self._index_key(key) not in read.violations)

        def begin(definition: TypeRecord) -> Op[Any]:
            packed, stated = self._packed(definition, number, keys), self._packed(definition, number, person.keys)
            return self._protocol.update_op(name_of(number), read, packed, self._value(self._tag(), keys), stated)

        try:
            self._operations.write(name_of(number), begin)
        except (Changed, Interrupted):
            return False
        return True
