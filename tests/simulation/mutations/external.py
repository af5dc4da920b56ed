"""Bugs in queues of an external store: each removes a guard of the reader, of visits, or of the ends of items there.

Those of the statements are planted in the model of the store: they are the guards of the schema's SQL functions.
"""

from fairlead.actors.external_pointers import Waker
from fairlead.actors.external_reader import ExternalReader
from fairlead.actors.external_upkeep import ExternalUpkeep
from fairlead.simulation.external import items, sessions, statements
from fairlead.simulation.external.world import run_external
from fairlead.simulation.oracles.consistency import IndexNamesEveryItem
from fairlead.simulation.oracles.external import (
    CommittedItemsRun,
    EffectsInStoreHappenOnce,
    LeasesInStoreAreRespected,
    QueuesGiveTheirShare,
    WhatIsSeenHasAPointer,
)
from fairlead.simulation.oracles.external_fairness import NoExternalQueueWaitsTooLong
from fairlead.simulation.oracles.external_sessions import SessionsInStoreLastAsLongAsTheirHeartbeats
from fairlead.simulation.oracles.leftovers import NothingIsLeftBehind
from fairlead.simulation.oracles.moving import TenantsMoveWhole
from fairlead.simulation.run import DRAINS
from fairlead.zones.external import arrivals, visits
from fairlead.zones.moving import destination, rows
from fairlead.zones.queue import insertion
from fairlead.zones.top_level import process_pointers
from fairlead.zones.top_level.silence import Silence
from tests.simulation.mutations.mutation import Mutation, in_a_race, mutation

_SESSIONS = (SessionsInStoreLastAsLongAsTheirHeartbeats.promise,)
_UNSEEN = (WhatIsSeenHasAPointer.promise, DRAINS)
_LEASES = (LeasesInStoreAreRespected.promise, CommittedItemsRun.promise, EffectsInStoreHappenOnce.promise)

EXTERNAL: tuple[Mutation, ...] = (
    mutation(
        "a reader that finds a pointer awake does not write to its guard",
        (arrivals.note_arrival, "tr.add_write_conflict_key(location.keys.pointer_guard)", "pass"),
        found_by=_UNSEEN,
        world=run_external,
    ),
    mutation(
        "a reader saves its snapshot before the pointers",
        (ExternalReader._read_once, "count, away = 0, set[str]()", "count, away = 0, set()\n        self._save(after)"),
        found_by=_UNSEEN,
        world=run_external,
    ),
    mutation(
        "a reader looks for arrivals first, and then takes the snapshot that it saves",
        (
            ExternalReader._read_once,
            "after = msgspec.structs.replace(before, seen=look.seen)",
            "after = msgspec.structs.replace(before, seen=self._store.snapshot())",
        ),
        found_by=_UNSEEN,
        world=run_external,
    ),
    mutation(
        "nobody takes over the reading of an external store from a consumer that died",
        (arrivals.take_reader, "now_us < found.until_us <= now_us + lease_us + CLOCKS_APART_US", "found.reader"),
        found_by=(NoExternalQueueWaitsTooLong.promise,),
        world=run_external,
    ),
    mutation(
        "a reader does not follow a tenant that has moved",
        (Waker._meet, "shard = followed", "self._settle([arrival])\n            return"),
        found_by=_UNSEEN,
        world=run_external,
    ),
    mutation(
        "a visit asks what is left only of queues that gave nothing",
        (visits._ask_what_is_left, "len(visit.taken) < max(1, visit.wanted)", "not visit.taken"),
        found_by=_UNSEEN,
        world=run_external,
    ),
    mutation(
        "a visit takes an external queue for empty whose items are locked, or cannot run here",
        (visits._plan, "if not each.waits:", "if True:"),
        found_by=_UNSEEN,
        world=run_external,
    ),
    mutation(
        "a visit does not ask when the next item of an external queue vests",
        (visits._plan, "if each.next_us is not None:", "if False:"),
        found_by=_UNSEEN,
        world=run_external,
    ),
    mutation(
        "an external queue gives more than its share",
        (visits._take, "Want(visit.queue, visit.wanted,", "Want(visit.queue, 2 * visit.wanted,"),
        found_by=(QueuesGiveTheirShare.promise,),
        world=run_external,
    ),
    mutation(
        "the pointer of an external queue does not move with its tenant",
        (rows.is_copied, "return row is None or is_external_pointer(row)", "return row is None"),
        found_by=(*_UNSEEN, TenantsMoveWhole.promise),
        world=run_external,
    ),
    mutation(
        "the pointer of an external queue has no entry where its tenant arrives",
        (destination._list_row, "_list_pointer(tr, location, row, now_us=now_us)", "pass"),
        found_by=(*_UNSEEN, IndexNamesEveryItem.promise, NothingIsLeftBehind.promise),
        world=run_external,
    ),
    mutation(
        "a dequeue of an external store leases what is leased",
        (statements._front, "max(row.vesting_us, row.leased_until_us) <= here_us", "row.vesting_us <= here_us"),
        found_by=_LEASES,
        world=run_external,
    ),
    mutation(
        "a snapshot of an external store is only the highest number",
        (items.ItemTable.snapshot_now, "each.number < xmax)", "False)"),
        found_by=_UNSEEN,
        world=run_external,
    ),
    mutation(
        "claims of living sessions in an external store are released",
        (sessions.release_ended, "if tx.get(session_key(row.session)) is None", "if True"),
        found_by=_LEASES,
        world=run_external,
    ),
    mutation(
        "what ended sessions claim in an external store is not released",
        (ExternalUpkeep.look, "_in_batches(sessions.release_ended)", "False"),
        found_by=_SESSIONS,
        world=run_external,
    ),
    mutation(
        "the silent session of a worker in an external store is not ended",
        (ExternalUpkeep.look, "sessions.end(session_id, silent_since=beats[session_id])", "False"),
        found_by=_SESSIONS,
        world=run_external,
    ),
    mutation(
        "a session in an external store is taken for silent after two looks",
        (Silence.note, "if looks >= LOOKS", "if looks >= 2"),
        found_by=_SESSIONS,
        world=run_external,
    ),
)
EXTERNAL_IN_RACES = (
    in_a_race(
        "a visit deletes the pointer of a tenant that comes in",
        (process_pointers.drop_moved, "and comes_in(owner.value):", "and False:"),
    ),
    in_a_race(
        "a resumed kind makes the pointers again that have gone",
        (insertion.wake_if_there_op, "if stored.value is not None:", "if True:"),
    ),
    in_a_race(
        "a visit of an external queue does not read the guard of its pointer",
        (visits._begin_visits, "tr.add_read_conflict_key(location.keys.pointer_guard)", "pass"),
    ),
    in_a_race(
        "a full look is saved only if the last save was long ago",
        (ExternalReader._read_once, "is_due = is_full or not 0", "is_due = not 0"),
    ),
    in_a_race(
        "a look goes on although refused queues have cost the lease",
        (
            ExternalReader._read_once,
            "        if self._record is None:\n            return LOOK_S\n        for some",
            "        for some",
        ),
    ),
)
